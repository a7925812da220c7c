"""HostPartitionRule: what may stay on the virtual machine, at no cost (RFC 0062, "HostPartitionRule").

Tuples and projections are bookkeeping. Shape operations give the machine's own values, not tensors. A *view* of
static shape (reshape and its kin) becomes a call that only makes a new header for the same memory (TVM's
RewriteDataflowReshape). All of these may also lie inside other candidates; alone they are not measured.
"""

from __future__ import annotations

from tvm import relax
from tvm.tirx import IntImm

from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.kinds import NodeKind, ValueKind
from collage.graph.sub_graph import SubGraph
from collage.rules.base import PartitionRule, PartitionSpec, candidate_of

#: Operators that only rename the memory of their first argument.
VIEW_OPERATORS = frozenset({"relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"})

#: Operators on the virtual machine's own values (shapes).
SHAPE_OPERATORS = frozenset({"relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape"})


class HostPartitionRule(PartitionRule):
    """One candidate of the backend `host` per node that the virtual machine can run for nothing."""

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        host = PartitionSpec(self, HOST)
        return [candidate_of(graph, host, [i]) for i in graph.coverable if runs_on_host(graph.nodes[i])]

    def __repr__(self) -> str:
        return "HostPartitionRule()"


def runs_on_host(node: DataflowNode) -> bool:
    """Whether the virtual machine runs the node by itself, without a kernel."""
    if node.kind is NodeKind.CALL:
        return node.value is ValueKind.OTHER or node.op in SHAPE_OPERATORS or is_static_view(node)
    return node.is_coverable


def is_static_view(node: DataflowNode) -> bool:
    """Whether the node only reshapes, from one static shape to another. Synthetic nodes count as static."""
    if node.op not in VIEW_OPERATORS:
        return False
    return node.expr is None or (_is_static(node.expr.ty) and _is_static(node.expr.args[0].ty))


def needs_backend(sub_graph: SubGraph) -> bool:
    """Whether something inside is more than the host runs for nothing."""
    return any(not runs_on_host(sub_graph.graph.nodes[i]) for i in sub_graph.inside)


def _is_static(ty: relax.Type) -> bool:
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr) and all(isinstance(extent, IntImm) for extent in shape.values)
