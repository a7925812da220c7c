"""The working set of a network: what passes through the caches between two calls of one operator.

A network that is called again and again reads all of its weights in each call, and writes intermediate values into
memory that is used again once they are dead. Where this fits into the caches, an operator finds its weights there.
"""

from __future__ import annotations

from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.from_relax import bytes_of
from collage.graph.kinds import NodeKind

#: Networks of about the same size share records; smaller ones than this fit into the caches of one processor.
_LEAST = 256 << 10


def working_set(graph: DataflowGraph) -> int:
    """Bytes of all constants and of the intermediate values when most of them are alive, in the order of the nodes;
    rounded up to a power of two, 256 KiB at least. Values whose size is not known count nothing.
    """
    weights = sum(_size(graph.nodes[index]) for index in graph.constants)
    dies = {node.index: max(node.outputs, default=node.index) for node in graph.nodes}
    leaving: dict[int, int] = {}
    alive = most = 0
    for node in graph.nodes:
        if node.kind is NodeKind.CONSTANT:
            continue
        alive += _size(node)
        most = max(most, alive)
        if not node.escapes:
            leaving[dies[node.index]] = leaving.get(dies[node.index], 0) + _size(node)
        alive -= leaving.pop(node.index, 0)
    return max(_LEAST, 1 << max(0, weights + most - 1).bit_length())


def _size(node: DataflowNode) -> int:
    if node.kind is NodeKind.CONSTANT:
        return 0 if node.expr is None else bytes_of(node.expr.ty)
    return node.size if node.var is None else bytes_of(node.var.ty)
