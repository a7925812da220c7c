"""The dataflow graph of a network and its sub-graphs: pure structure, no costs."""

from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.graph.sub_graph import SubGraph, SubGraphConfig

__all__ = ["DataflowGraph", "DataflowNode", "IndexSet", "NodeKind", "OpKind", "SubGraph", "SubGraphConfig", "ValueKind"]
