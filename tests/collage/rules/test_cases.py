"""The cases of `test_semantic_cases`: the rules find every candidate that the optimum is made of."""

import pytest

from collage.graph import DataflowGraph, OpKind, SubGraphConfig
from collage.rules import (
    CombinePartitionRule,
    OnlyValidPartitionRule,
    OpPredicatePartitionRule,
    PartitionRule,
    native_rule,
)
from tests.collage.rules.networks import ANYTHING, IN, A, B, E, Nodes, found


def joins_anything(max_depth: int) -> PartitionRule:
    """Backend B: takes relu, add and concat, and joins anything."""
    takes = OpPredicatePartitionRule(lambda node: node.op in ("relu", "add", "concat"))
    return OnlyValidPartitionRule(CombinePartitionRule(takes, [ANYTHING], max_depth), SubGraphConfig())


def unary(*edges: tuple[str, int]) -> list[tuple[str, OpKind, list[int]]]:
    return [(op, E, [source]) for op, source in edges]


DIAMOND = [*unary(("relu", 0), ("abs", 1), ("relu", 2)), ("add", B, [1, 3])]
THREE_RELUS = unary(("relu", 0), ("relu", 1), ("relu", 2))
FUSION = [
    *unary(("relu", 0), ("relu", 1), ("abs", 0), ("relu", 3)),
    ("add", B, [2, 4]),
    *unary(("relu", 5), ("abs", 6)),
]
DOUBLE_RESIDUAL = [*unary(("relu", 0), ("abs", 1)), ("add", B, [1, 2]), ("add", B, [2, 3])]


@pytest.mark.parametrize(
    ("operators", "depth_t", "depth_b", "of_t", "of_b"),
    [
        (DIAMOND, 1, 3, [(2,)], [(1,), (3, 4)]),
        (THREE_RELUS, 2, 1, [(1, 2), (2, 3)], [(1,), (3,)]),
        (THREE_RELUS, 1, 3, [], [(1, 2, 3)]),
        (FUSION, 1, 5, [(3,), (7,)], [(1, 2, 4, 5, 6)]),
        (DOUBLE_RESIDUAL, 4, 4, [(2,)], [(1,), (3, 4)]),
    ],
    ids=["diamond", "three relus, T", "three relus, B", "fusion benefit", "double residual"],
)
def test_the_optimum_is_among_the_candidates(
    operators: list[tuple[str, OpKind, list[int]]], depth_t: int, depth_b: int, of_t: list[Nodes], of_b: list[Nodes]
) -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), *operators])
    native, library = found(native_rule(depth_t), graph), found(joins_anything(depth_b), graph)
    assert set(of_t) <= set(native) and set(of_b) <= set(library)
    assert {(i,) for i in graph.coverable} <= set(native), "T takes every operator"


def test_what_would_re_enter_is_no_candidate() -> None:
    diamond = DataflowGraph.from_edges([("x", IN, []), *DIAMOND])
    residual = DataflowGraph.from_edges([("x", IN, []), *DOUBLE_RESIDUAL])
    assert (1, 3, 4) not in found(joins_anything(3), diamond)
    assert (1, 3, 4) not in found(joins_anything(4), residual)


def test_a_butterfly_has_both_wings() -> None:
    """Each is convex alone; that they cannot be chosen together is for the searcher to see."""
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("relu", E, [0]), ("add", B, [1, 2]), ("add", B, [2, 1])]
    )
    assert {(1, 3), (2, 4)} <= set(found(joins_anything(2), graph))


def test_a_coloured_square() -> None:
    """A->B, A->C, B->D, C->D, all red but C: never {A,B,D}."""
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("relu", E, [1]), ("abs", A, [1]), ("add", B, [2, 3])]
    )
    assert set(found(joins_anything(0), graph)) == {(1,), (2,), (4,), (1, 2), (2, 4)}
