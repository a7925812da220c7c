"""Search order and bound: a topological order with few live values; a bound below every cover, tight on chains."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.cover_search.bounds import node_shares, positions
from searchers.cover_search.layout import search_order
from searchers.cover_search.moves import Moves, make_moves
from searchers.cover_search.objective import make_objective
from tests.searchers.problems import candidate, covers, graph_of, problem_of, value


@st.composite
def edges(draw: Any) -> list[list[int]]:
    size = draw(st.integers(1, 14))
    return [sorted(draw(st.sets(st.integers(0, max(0, i - 1)), max_size=3))) if i else [] for i in range(size)]


@given(edges())
def test_the_order_is_topological_and_complete(inputs: list[list[int]]) -> None:
    order = search_order(graph_of(inputs))
    assert sorted(order) == list(range(len(inputs)))
    assert all(order.index(source) < order.index(node) for node in range(len(inputs)) for source in inputs[node])


def test_interleaved_branches_are_taken_one_after_the_other() -> None:
    """Eight branches of three, written breadth first, joined in pairs as they come."""
    heads = [[] for _ in range(8)]
    tails = [[i] for i in range(16)]
    joins = [[16], *[[15 + i + 1, 23 + i] for i in range(1, 8)]]
    order = search_order(graph_of([*heads, *tails, *joins]))
    assert order.index(8) - order.index(0) == 1 and order.index(9) - order.index(1) == 1


def shares_of(problem: Any) -> tuple[Moves, list[int], Any]:
    found = list(problem.candidates)
    objective = make_objective(problem, found, problem.costs(found))
    moves = make_moves(problem.graph, objective)
    return moves, node_shares(moves), objective


@settings(max_examples=200, deadline=None)
@given(edges(), st.data())
def test_no_candidate_costs_less_than_the_shares_of_its_nodes(inputs: list[list[int]], data: Any) -> None:
    graph = graph_of(inputs)
    drawn = st.frozensets(st.integers(0, len(inputs) - 1), min_size=1, max_size=4)
    costs = {candidate(graph, "x", nodes): float(data.draw(st.integers(0, 9))) for nodes in data.draw(st.sets(drawn))}
    costs |= {candidate(graph, "y", [node]): float(data.draw(st.integers(0, 9))) for node in range(len(inputs))}
    moves, shares, objective = shares_of(problem_of(graph, costs))
    for first, starting in enumerate(moves.starting):
        for move in starting:
            assert sum(shares[p] for p in positions(move.nodes, first)) <= move.weight
    if len(inputs) <= 7:
        problem = problem_of(graph, costs)
        assert all(objective.seconds(sum(shares)) <= value(problem, cover)[2] + 1e-9 for cover in covers(problem))


def test_on_a_chain_the_bound_is_the_optimum() -> None:
    graph = graph_of([[], *([i] for i in range(11))])
    spans = [range(start, end) for start in range(12) for end in range(start + 1, min(12, start + 4) + 1)]
    problem = problem_of(
        graph, {candidate(graph, "x", span): (7 * span[0] + 3 * len(span)) % 11 + 1.0 for span in spans}
    )
    _, shares, objective = shares_of(problem)
    assert objective.seconds(sum(shares)) == min(value(problem, cover)[2] for cover in covers(problem))
