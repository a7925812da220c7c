"""Which anchors run as one: vertical (one directly feeds the other) and horizontal (they read one value)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage.graph import DataflowGraph, NodeKind, OpKind, SubGraphConfig
from collage.graph.from_relax import read_graph
from collage.rules import (
    CombinePartitionRule,
    CombinerRule,
    OnlyValidPartitionRule,
    OpCallByKindPartitionRule,
    native_rule,
)
from collage.rules.base import PartitionSpec
from tests.collage.rules.example_combiners import CombineHorizontalAnchors, CombineVerticalAnchors
from tests.collage.rules.networks import CONST, IN, A, B, E, I, Nodes, R, found

Build = Callable[[Any], Any]
HORIZONTAL, VERTICAL = CombineHorizontalAnchors(), CombineVerticalAnchors()


def constant(*shape: int) -> Any:
    return relax.const(np.ones(shape, "float32"))


def relax_graph(shape: tuple[int, ...], build: Callable[[Any, Callable[[Any], Any]], list[Any]]) -> DataflowGraph:
    """The graph of one dataflow block; `build` takes the input and the function that binds a call."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            results = build(x, builder.emit)
            output = builder.emit_output(relax.Tuple(results) if len(results) > 1 else results[0])
        builder.emit_func_output(output)
    return read_graph(builder.get())


def joins(graph: DataflowGraph, *combiners: CombinerRule) -> set[tuple[str, ...]]:
    """Operators of each union of anchors that the combiners make of single operators."""
    rule = CombinePartitionRule(OpCallByKindPartitionRule(), combiners)
    ops = ([graph.nodes[i].op.rpartition(".")[2] for i in nodes] for nodes in found(rule, graph) if len(nodes) > 1)
    return {tuple(names) for names in ops}


def branches(shape: tuple[int, ...], *calls: Build) -> DataflowGraph:
    """Calls that all read the input and all escape."""
    return relax_graph(shape, lambda x, emit: [emit(call(x)) for call in calls])


def conv(out: int, into: int, window: int = 3, **attrs: Any) -> Build:
    padding = attrs.pop("padding", window // 2)
    return lambda x: relax.op.nn.conv2d(x, constant(out, into, window, window), padding=padding, **attrs)


def dense(into: int, out: int) -> Build:
    return lambda x: relax.op.matmul(x, constant(into, out))


IMAGE, ROWS = (1, 8, 6, 6), (1, 4, 8)


def test_query_key_and_value_run_as_one() -> None:
    graph = branches(ROWS, dense(8, 8), dense(8, 8), dense(8, 2))
    assert joins(graph, HORIZONTAL) == {("matmul",) * 2, ("matmul",) * 3}


@pytest.mark.parametrize(
    ("first", "second", "as_one"),
    [
        (conv(4, 8), conv(16, 8), True),
        (conv(4, 8, 3), conv(4, 8, 1), False),
        (conv(4, 8), conv(4, 8, strides=2), False),
        (conv(4, 8), conv(4, 8, padding=2, dilation=2), False),
        (conv(8, 1, groups=8), conv(8, 1, groups=8), False),
    ],
    ids=["output channels differ", "windows differ", "strides differ", "dilations differ", "grouped"],
)
def test_convolutions_beside_each_other(first: Build, second: Build, as_one: bool) -> None:
    assert bool(joins(branches(IMAGE, first, second), HORIZONTAL)) == as_one


def test_different_operators_do_not_run_as_one() -> None:
    graph = branches((4, 4), dense(4, 4), lambda x: relax.op.nn.softmax(x))
    assert joins(graph, HORIZONTAL) == set()


def test_the_shared_value_is_read_at_one_place() -> None:
    """x W1 and W2 x are both matmuls of x and a square constant; W2 x and W3 x can be stacked, rows upon rows."""
    left: Build = lambda x: relax.op.matmul(constant(4, 4), x)  # noqa: E731
    taller: Build = lambda x: relax.op.matmul(constant(7, 4), x)  # noqa: E731
    assert joins(branches((4, 4), dense(4, 4), left), HORIZONTAL) == set()
    assert joins(branches((4, 4), left, taller), HORIZONTAL) == {("matmul", "matmul")}


def test_only_weights_are_put_side_by_side() -> None:
    """Two products of x with values computed on the way have nothing to be stacked beforehand."""

    def build(x: Any, emit: Callable[[Any], Any]) -> list[Any]:
        one, two = emit(relax.op.exp(x)), emit(relax.op.tanh(x))
        return [emit(relax.op.matmul(x, one)), emit(relax.op.matmul(x, two))]

    assert joins(relax_graph((4, 4), build), HORIZONTAL) == set()


def test_inputs_of_other_shapes_or_values_stay_apart() -> None:
    def build(x: Any, emit: Callable[[Any], Any]) -> list[Any]:
        return [emit(dense(8, 8)(x)), emit(dense(8, 8)(emit(relax.op.exp(x))))]

    assert joins(relax_graph(ROWS, build), HORIZONTAL) == set()


def test_followers_join_with_their_anchors() -> None:
    """Projections with their biases fused first: then the three biased ones run as one, with three exits."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("c", CONST, [])]
    for _ in range(3):
        nodes += [("dense", A, [0, 1]), ("add", B, [len(nodes), 1])]
    graph = DataflowGraph.from_edges(nodes)
    beside = CombinePartitionRule(native_rule(), [HORIZONTAL])
    valid = OnlyValidPartitionRule(beside, SubGraphConfig(max_exits=3))
    assert (2, 3, 4, 5, 6, 7) in found(valid, graph)
    assert {nodes for nodes in found(valid, graph) if len(nodes) < 3} >= set(found(native_rule(), graph))


@pytest.mark.parametrize(("limit", "largest", "unions"), [(2, 2, 10), (3, 3, 20), (0, 5, 26)])
def test_the_number_of_anchors_in_one_is_limited(limit: int, largest: int, unions: int) -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), *(("dense", A, [0]) for _ in range(5))])
    rule = CombinePartitionRule(OpCallByKindPartitionRule(), [CombineHorizontalAnchors(max_anchors=limit)])
    joined: list[Nodes] = [nodes for nodes in found(rule, graph) if len(nodes) > 1]
    assert (max(map(len, joined)), len(joined)) == (largest, unions)


def sequence(shape: tuple[int, ...], *calls: Build) -> DataflowGraph:
    def build(x: Any, emit: Callable[[Any], Any]) -> list[Any]:
        for call in calls:
            x = emit(call(x))
        return [x]

    return relax_graph(shape, build)


def test_pointwise_after_depthwise_runs_as_one() -> None:
    graph = sequence(IMAGE, conv(8, 1, groups=8), conv(16, 8, 1))
    assert joins(graph, VERTICAL) == {("conv2d", "conv2d")}


def test_a_window_after_a_convolution_would_compute_its_rim_twice() -> None:
    graph = sequence(IMAGE, conv(8, 8, 1), conv(8, 8, 3))
    assert joins(graph, VERTICAL) == set()
    assert joins(graph, CombineVerticalAnchors(local_only=False)) == {("conv2d", "conv2d")}


def test_matmul_after_matmul_keeps_rows_apart() -> None:
    assert joins(sequence(ROWS, dense(8, 16), dense(16, 4)), VERTICAL) == {("matmul", "matmul")}


def test_a_matmul_whose_weights_are_computed_needs_all_rows() -> None:
    """W (W x) reads the first product from the right: each row needs all of it."""
    twice: Build = lambda x: relax.op.matmul(constant(4, 4), x)  # noqa: E731
    assert joins(sequence((4, 4), twice, twice), VERTICAL) == set()
    square: Build = lambda x: relax.op.matmul(x, x)  # noqa: E731
    assert joins(sequence((4, 4), dense(4, 4), square), VERTICAL) == set()


def test_different_anchors_do_not_run_one_after_the_other() -> None:
    assert joins(sequence(ROWS, dense(8, 8), lambda x: relax.op.nn.softmax(x)), VERTICAL) == set()


def between(kind: OpKind) -> DataflowGraph:
    return DataflowGraph.from_edges([("x", IN, []), ("dense", A, [0]), ("middle", kind, [1]), ("dense", A, [2])])


@pytest.mark.parametrize(("kind", "joined"), [(E, True), (B, True), (I, False), (R, False)])
def test_what_may_lie_between(kind: OpKind, joined: bool) -> None:
    assert ((1, 2, 3) in vertical_on_native(between(kind), VERTICAL)) == joined


def test_more_may_lie_between_on_demand() -> None:
    """Scores, softmax, values: a kernel of attention keeps rows apart through a reduction along the row."""
    anchors = OpCallByKindPartitionRule()
    rule = CombinePartitionRule(anchors, [CombineVerticalAnchors(between=OpKind.REDUCTION), _Anything(R)])
    assert (1, 2, 3) in found(rule, between(R))


class _Anything(CombinerRule):
    """Joins an anchor to a follower of one kind."""

    def __init__(self, kind: OpKind) -> None:
        self.kind = kind

    def joins(self, upstream: Any, downstream: Any) -> bool:
        return bool(downstream.kind is self.kind)


def vertical_on_native(graph: DataflowGraph, combiner: CombinerRule) -> set[Nodes]:
    rule = CombinePartitionRule(native_rule(), [combiner])
    return {tuple(c.sub_graph.inside) for c in PartitionSpec(rule, "t").candidates(graph)}


def test_two_anchors_that_meet_in_a_sum_do_not_feed_each_other() -> None:
    """conv, and add(conv, .) of another: an edge connects the two sub-graphs, but none of the anchors."""
    graph = DataflowGraph.from_edges([("x", IN, []), ("conv", A, [0]), ("conv", A, [0]), ("add", B, [1, 2])])
    assert (1, 2, 3) not in vertical_on_native(graph, VERTICAL)
