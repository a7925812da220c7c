"""Which neighbours each combiner joins."""

from collage.graph import DataflowGraph, NodeKind, OpKind
from collage.graph.candidates import CandidatePartition
from collage.rules import (
    NATIVE_KIND_TABLE,
    CombinePartitionRule,
    CombinerRule,
    CombineTupleArguments,
    CombineTupleProjections,
    CompositePartitionRule,
    OpPredicatePartitionRule,
    UnionPartitionRule,
)
from collage.rules.base import PartitionSpec
from tests.collage.rules.example_combiners import CombineConstants, CombineHorizontalAnchors, CombineVerticalAnchors
from tests.collage.rules.networks import ANYTHING, CONST, GET, IN, TUPLE, A, B, E, I, O, R, found

EVERY_NODE = OpPredicatePartitionRule(lambda node: True)


def joins(graph: DataflowGraph, *combiners: CombinerRule) -> set[tuple[int, ...]]:
    """The unions of two or more nodes."""
    return {nodes for nodes in found(CombinePartitionRule(EVERY_NODE, combiners), graph) if len(nodes) > 1}


def pair(first: OpKind, second: OpKind) -> DataflowGraph:
    return DataflowGraph.from_edges([("x", IN, []), ("first", first, [0]), ("second", second, [1])])


def test_the_native_kind_table() -> None:
    fused = {(u, d) for u in (E, B, I, R, A, O) for d in (E, B, I, R, A, O) if joins(pair(u, d), *NATIVE_KIND_TABLE)}
    onto_broadcast = {(u, d) for u in (E, B, I, R, A) for d in (E, B)}
    into_reduction = {(u, d) for u in (E, B) for d in (E, B, I, R)}
    between_injective = {(u, d) for u in (E, B, I) for d in (E, B, I)}
    assert fused == onto_broadcast | into_reduction | between_injective


def test_two_anchors_never_fuse_natively_through_an_add() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("conv", A, [0]), ("conv", A, [0]), ("add", B, [1, 2])])
    assert joins(graph, *NATIVE_KIND_TABLE) == {(1, 3), (2, 3)}


def test_opaque_joins_only_anything() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("relu", E, [0]), ("sort", O, [1]), ("relu", E, [2])])
    assert joins(graph, *NATIVE_KIND_TABLE) == set()
    assert joins(graph, ANYTHING) == {(1, 2), (2, 3), (1, 2, 3)}


def test_tuple_arguments() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("conv", A, [0]), ("tuple", TUPLE, [1, 2]), ("concat", I, [3])]
    )
    assert joins(graph, CombineTupleArguments()) == {(1, 3), (3, 4), (1, 3, 4)}


def test_tuple_projections() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("batch_norm", A, [0]), ("get", GET, [1]), ("get", GET, [1]), ("relu", E, [2])]
    )
    assert joins(graph, CombineTupleProjections()) == {(1, 2), (1, 3), (1, 2, 3)}


def test_constants() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("w", CONST, []), ("transpose", I, [1]), ("dense", A, [0, 2])])
    assert joins(graph, CombineConstants()) == {(2, 3)}
    assert joins(graph, *NATIVE_KIND_TABLE) == set()


def test_vertical_anchors() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("conv", A, [0]), ("relu", E, [1]), ("conv", A, [2]), ("conv", A, [3])]
    )
    assert joins(graph, CombineVerticalAnchors()) == {(3, 4)}
    with_relu = joins(graph, CombineVerticalAnchors(), *NATIVE_KIND_TABLE)
    assert (1, 2, 3) in with_relu, "the relu fuses onto the first, and then the two anchors are neighbours"
    assert (1, 2, 3, 4) not in with_relu, "two at a time"


def test_horizontal_anchors() -> None:
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [("x", IN, []), ("y", IN, [])]
    nodes += [("dense", A, [0]), ("dense", A, [0]), ("conv", A, [0]), ("dense", A, [1])]
    graph = DataflowGraph.from_edges(nodes)
    assert joins(graph, CombineHorizontalAnchors()) == {(2, 3)}
    three = DataflowGraph.from_edges([("x", IN, []), ("dense", A, [0]), ("dense", A, [0]), ("dense", A, [0])])
    assert joins(three, CombineHorizontalAnchors()) == {(1, 2), (1, 3), (2, 3), (1, 2, 3)}


def test_horizontal_anchors_that_depend_on_each_other_stay_apart() -> None:
    """Both read x, but the second also reads the first, or what the first leads to: they cannot run as one."""
    through = DataflowGraph.from_edges([("x", IN, []), ("dense", A, [0]), ("relu", E, [1]), ("dense", A, [0, 2])])
    direct = DataflowGraph.from_edges([("x", IN, []), ("dense", A, [0]), ("dense", A, [0, 1])])
    assert joins(through, CombineHorizontalAnchors()) == set()
    assert joins(direct, CombineHorizontalAnchors()) == set()


def test_joined_candidates_keep_their_labels() -> None:
    graph = pair(A, E)
    first = CompositePartitionRule("lib.conv", OpPredicatePartitionRule(lambda node: node.op == "first"))
    second = CompositePartitionRule("lib.relu", OpPredicatePartitionRule(lambda node: node.op == "second"))
    rule = CombinePartitionRule(UnionPartitionRule(second, first), [ANYTHING])
    both: CandidatePartition = PartitionSpec(rule, "lib").candidates(graph)[-1]
    assert [(label, tuple(nodes)) for label, nodes in both.composites] == [("lib.conv", (1,)), ("lib.relu", (2,))]
