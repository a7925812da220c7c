"""Pruning keeps the optimum: over what remains it equals the optimum over all."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from networks import chain
from random_graphs import graphs, is_acyclic

from collage.graph import DataflowGraph, IndexSet, SubGraph
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.rules import prune


def optimum(graph: DataflowGraph, candidates: CandidateSet, cost: dict[CandidatePartition, int]) -> float:
    """The least cost of an acyclic exact cover, by trying all; infinite when there is none."""
    best = math.inf

    def extend(left: IndexSet, chosen: list[CandidatePartition]) -> None:
        nonlocal best
        if not left:
            total = sum(cost[c] for c in chosen)
            if total < best and is_acyclic(graph, [list(c.sub_graph.inside) for c in chosen]):
                best = total
            return
        for candidate in candidates:
            inside = candidate.sub_graph.inside
            if left.first in inside and inside <= left:
                extend(left - inside, [*chosen, candidate])

    extend(graph.coverable, [])
    return best


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_optimum_over_the_pruned_is_the_optimum_over_all(data: st.DataObject) -> None:
    graph = data.draw(graphs(max_operators=5))
    nodes = list(graph.coverable)
    chosen = data.draw(st.lists(st.sets(st.sampled_from(nodes), min_size=1, max_size=4), min_size=1, max_size=10))
    convex = [s for s in (SubGraph(graph, IndexSet(c)) for c in chosen) if s.is_convex]
    candidates = CandidateSet(CandidatePartition(s, data.draw(st.sampled_from("ab"))) for s in convex)
    cost = {c: data.draw(st.integers(1, 9)) for c in candidates}
    pruned = prune(graph, candidates)
    assert set(pruned) <= set(candidates)
    assert optimum(graph, pruned, cost) == optimum(graph, candidates, cost)


def candidates_of(graph: DataflowGraph, *sets: tuple[int, ...]) -> CandidateSet:
    return CandidateSet(CandidatePartition(SubGraph(graph, IndexSet(nodes)), "b") for nodes in sets)


def test_what_fits_in_no_cover_goes_and_takes_others_with_it() -> None:
    """Only {3,4} holds 4, so {2,3} goes; then nothing but {1,2} holds 2, so {1} goes."""
    graph = chain(4)
    kept = prune(graph, candidates_of(graph, (1,), (1, 2), (2, 3), (3, 4)))
    assert [tuple(c.sub_graph.inside) for c in kept] == [(1, 2), (3, 4)]


def test_small_candidates_inside_large_ones_stay() -> None:
    graph = chain(2)
    assert len(prune(graph, candidates_of(graph, (1,), (2,), (1, 2)))) == 3


def test_nothing_remains_without_a_cover() -> None:
    graph = chain(2)
    assert len(prune(graph, candidates_of(graph, (1,)))) == 0
