"""What a sub-graph derives from its nodes."""

import pytest
from hypothesis import given, settings

from collage.graph import DataflowGraph, IndexSet, NodeKind, OpKind, SubGraph, SubGraphConfig
from tests.collage.graph.random_graphs import flows, graphs, is_convex, longest_path, subsets

E, B, I, A, O = OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.INJECTIVE, OpKind.ANCHOR, OpKind.OPAQUE  # noqa: E741


def double_residual() -> DataflowGraph:
    """r1; abs2(r1); add3(r1,abs2); add4(abs2,add3)."""
    return DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", E, [0]), ("abs", E, [1]), ("add", B, [1, 2]), ("add", B, [2, 3])]
    )


def sub(graph: DataflowGraph, *nodes: int) -> SubGraph:
    return SubGraph(graph, IndexSet(nodes))


def test_boundary() -> None:
    graph = double_residual()
    inner = sub(graph, 2, 3)
    assert inner.entries == IndexSet([2, 3]) and inner.inputs == IndexSet([1])
    assert inner.exits == IndexSet([2, 3]) and inner.outputs == IndexSet([4])
    assert inner.taps == IndexSet([2])
    assert (inner.depth, inner.kind, inner.label) == (2, B, "abs+add")


def test_a_node_of_the_result_is_an_exit_without_outputs() -> None:
    last = sub(double_residual(), 4)
    assert last.exits == IndexSet([4]) and not last.outputs


def test_constants_are_pulled_in() -> None:
    graph = DataflowGraph.from_edges([("x", NodeKind.INPUT, []), ("w", NodeKind.CONSTANT, []), ("dense", A, [0, 1])])
    dense = sub(graph, 2)
    assert dense.inputs == IndexSet([0])
    assert graph.coverable == IndexSet([2])
    folded = DataflowGraph.from_edges([("w", NodeKind.CONSTANT, []), ("transpose", I, [0])])
    assert not sub(folded, 1).inputs and not sub(folded, 1).entries and sub(folded, 1).depth == 1


def test_double_residual_convexity() -> None:
    graph = double_residual()
    assert not sub(graph, 1, 3, 4).is_convex, "r1 -> abs2 -> add4 leaves and re-enters"
    assert sub(graph, 3, 4).is_convex
    assert sub(graph, 1, 2, 3, 4).is_convex


def test_coloured_square_joins_no_opposite_corners() -> None:
    square = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("A", E, [0]), ("B", E, [1]), ("C", E, [1]), ("D", B, [2, 3])]
    )
    assert not sub(square, 1, 2, 4).is_convex
    assert sub(square, 1, 2).is_convex and sub(square, 2, 4).is_convex


@pytest.mark.parametrize(
    ("nodes", "config", "valid"),
    [
        ((2, 3), SubGraphConfig(), True),
        ((2, 3), SubGraphConfig(max_exits=1), False),
        ((2, 3), SubGraphConfig(allow_taps=False), False),
        ((2, 3), SubGraphConfig(max_depth=1), False),
        ((3, 4), SubGraphConfig(max_exits=1, allow_taps=False, max_depth=2), True),
        ((1, 3, 4), SubGraphConfig(), False),
        ((), SubGraphConfig(), False),
    ],
)
def test_validity(nodes: tuple[int, ...], config: SubGraphConfig, valid: bool) -> None:
    assert sub(double_residual(), *nodes).is_valid(config) is valid


def test_equality_is_by_nodes_of_one_graph() -> None:
    graph = double_residual()
    assert sub(graph, 1, 2) == sub(graph, 1).union(sub(graph, 2))
    assert hash(sub(graph, 1, 2)) == hash(sub(graph, 2, 1))
    assert sub(graph, 1) != sub(double_residual(), 1)


def test_kind_is_the_greatest() -> None:
    graph = DataflowGraph.from_edges([("x", NodeKind.INPUT, []), ("conv", A, [0]), ("sort", O, [1])])
    assert sub(graph, 1).kind is A and sub(graph, 1, 2).kind is O


def test_tuples_do_not_cross_a_tensor_boundary() -> None:
    graph = DataflowGraph.from_edges(
        [
            ("x", NodeKind.INPUT, []),
            ("split", I, [0]),
            ("get", NodeKind.TUPLE_GET, [1]),
            ("get", NodeKind.TUPLE_GET, [1]),
        ]
    )
    assert sub(graph, 1, 2, 3).has_tensor_boundary
    assert not sub(graph, 1).has_tensor_boundary
    assert not sub(graph, 2).has_tensor_boundary
    assert not sub(graph, 1, 2).has_tensor_boundary


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_every_set_agrees_with_the_definitions(graph: DataflowGraph) -> None:
    paths = flows(graph)
    assert all(graph.downstream[a] >> b & 1 for a, b in paths)
    assert sum(bits.bit_count() for bits in graph.downstream) == len(paths)
    assert sum(bits.bit_count() for bits in graph.upstream) == len(paths)
    for inside in subsets(graph):
        found = SubGraph(graph, IndexSet(inside))
        assert found.is_convex == is_convex(graph, inside)
        assert found.depth == longest_path(graph, inside)
        read = {s for i in inside for s in graph.nodes[i].inputs if s not in inside and s not in graph.constants}
        readers = {r for i in inside for r in graph.nodes[i].outputs if r not in inside}
        assert set(found.inputs) == read and set(found.outputs) == readers
        assert set(found.entries) == {i for i in inside if read & set(graph.nodes[i].inputs)}
        exits = {i for i in inside if graph.nodes[i].escapes or readers & set(graph.nodes[i].outputs)}
        assert set(found.exits) == exits
        assert set(found.taps) == {i for i in exits if inside & set(graph.nodes[i].outputs)}
