"""Further combiners of RFC 0062, which no bundled backend has a kernel for: examples of `CombinerRule`.

A backend that runs two anchors as one, or computes with constants inside a kernel, adds them to its `Combine` rule.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import tvm_ffi

from collage.graph import DataflowGraph, IndexSet, NodeKind, OpKind, SubGraph
from collage.graph.dataflow_graph import DataflowNode
from collage.graph.description import describe_type
from collage.rules import CombinerRule

_CONVOLUTIONS = frozenset({"relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"})


@dataclass(frozen=True)
class CombineConstants(CombinerRule):
    """Joins operators that read nothing but constants to their readers."""

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        return not upstream.boundary.inputs and upstream.kind is not OpKind.OPAQUE


@dataclass(frozen=True)
class CombineVerticalAnchors(CombinerRule):
    """Joins two sub-graphs with one anchor each, of one operator, where the first directly feeds the second (pointwise
    after depthwise convolution, matmul after matmul).

    *Directly*: the first flows into the data operand of the second, and into no other, and nothing above `between` lies
    on the way. A sum in which two anchors meet joins nothing.

    Attributes
    ----------
    max_kind: sub-graphs of a greater kind are left alone.
    between: greatest kind of what lies between the anchors.
    local_only: only where one tile of the second needs one tile of the first, so that nothing is computed twice: the
        second is a convolution with a window of one element, or a matmul, which keeps rows apart.
    """

    max_kind: OpKind = OpKind.ANCHOR
    between: OpKind = OpKind.BROADCAST
    local_only: bool = True

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        if max(upstream.kind, downstream.kind) > self.max_kind:
            return False
        above, below = _anchors(upstream), _anchors(downstream)
        if len(above) != 1 or len(below) != 1 or above[0].op != below[0].op:
            return False
        first, second = above[0], below[0]
        if not self._feeds_data(upstream.graph, first, second):
            return False
        return not self.local_only or _is_local(second)

    def _feeds_data(self, graph: DataflowGraph, first: DataflowNode, second: DataflowNode) -> bool:
        after = graph.downstream[first.index]
        if [i for i in second.inputs if i == first.index or after >> i & 1] != [second.inputs[0]]:
            return False
        if not _has_two_operands(second):
            return False
        way = IndexSet.from_bits(after & graph.upstream[second.index])
        return all(graph.nodes[i].op_kind <= self.between for i in way)


@dataclass(frozen=True)
class CombineHorizontalAnchors(CombinerRule):
    """Joins sub-graphs whose anchors read one value and can run as one (query, key, value projections).

    *As one*: the same operator with the same attributes reads the shared value at the same place, and the weights
    differ in nothing but the output channels; so one call with the weights side by side computes all. Grouped
    convolutions cannot, nor windows of different sizes.

    The result has one exit more than its parts: the tree above has to allow them.

    Attributes
    ----------
    max_kind: sub-graphs of a greater kind are left alone.
    max_anchors: so many anchors in one at most; 0 for no limit. Each subset of the anchors that can run as one is a
        union, and all layers of a decoder read the encoder's result.
    """

    horizontal: ClassVar[bool] = True
    max_kind: OpKind = OpKind.ANCHOR
    max_anchors: int = 3

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        if max(upstream.kind, downstream.kind) > self.max_kind:
            return False
        first, second = _anchors(upstream), _anchors(downstream)
        anchors = [*first, *second]
        if not first or not second or (self.max_anchors and len(anchors) > self.max_anchors):
            return False
        shared = frozenset.intersection(*(frozenset(anchor.inputs) for anchor in anchors))
        values = sorted(shared.intersection(upstream.boundary.inputs, downstream.boundary.inputs))
        return any(_run_as_one(upstream.graph, anchors, value) for value in values)


def _anchors(sub_graph: SubGraph) -> list[DataflowNode]:
    nodes = (sub_graph.graph.nodes[i] for i in sub_graph.inside)
    return [node for node in nodes if node.op_kind is OpKind.ANCHOR]


def _has_two_operands(node: DataflowNode) -> bool:
    """Whether it reads data and weights, two values, so that its inputs are its arguments. Synthetic nodes count."""
    return node.expr is None or len(node.inputs) == 2 == len(node.expr.args)


def _is_local(node: DataflowNode) -> bool:
    """Whether it reads, for each row or pixel of its output, one row or pixel of its data. Synthetic nodes count."""
    if node.expr is None or node.op == "relax.matmul":
        return True
    if node.op not in _CONVOLUTIONS or any(int(pad) for pad in node.expr.attrs.padding):
        return False
    kernel, layout = node.expr.args[1].ty, str(node.expr.attrs.kernel_layout)
    window = [describe_type(kernel)[0][layout.index(axis)] for axis in layout if axis not in "OI"]
    return all(extent == 1 for extent in window)


def _run_as_one(graph: DataflowGraph, anchors: Sequence[DataflowNode], value: int) -> bool:
    if len({anchor.op for anchor in anchors}) > 1:
        return False
    signatures = {_signature(graph, anchor, value) for anchor in anchors}
    return len(signatures) == 1 and None not in signatures


def _signature(graph: DataflowGraph, anchor: DataflowNode, value: int) -> Hashable:
    """What anchors that read `value` must have in common to run as one; None for one that cannot run with others.

    Of synthetic nodes, the operator and the place of the value: they count as alike otherwise.
    """
    place = anchor.inputs.index(value)
    own = [i for i in anchor.inputs if i != value]
    if any(graph.nodes[i].kind is not NodeKind.CONSTANT for i in own):
        return None  # only weights can be put side by side beforehand
    if anchor.expr is None:
        return (anchor.op, place)
    axis = _channel_axis(anchor, place)
    if axis is None or not _has_two_operands(anchor):
        return None
    shape, dtype = describe_type(anchor.expr.args[1 - place].ty)
    if shape is None:
        return None
    others = (*shape[:axis], None, *shape[axis + 1 :])
    return (anchor.op, place, tvm_ffi.StructuralKey(anchor.expr.attrs), others, dtype)


def _channel_axis(anchor: DataflowNode, place: int) -> int | None:
    """The axis of the weights along which the output channels lie, when the data is operand `place`."""
    call = anchor.expr
    if anchor.op in _CONVOLUTIONS:
        alone = place == 0 and int(call.attrs.groups) == 1
        return str(call.attrs.kernel_layout).index("O") if alone else None
    if anchor.op == "relax.matmul":
        rank = int(call.args[1 - place].ty.ndim)
        return rank - 1 - place if rank >= 2 else None
    return None
