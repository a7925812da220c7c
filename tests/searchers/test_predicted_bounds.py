"""Lazy costing with an estimator's intervals: what is promised while costs lie inside them, and when it ends."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.cost.cost import Cost
from collage.graph.candidates import CandidatePartition
from collage.search import SearchProblem
from collage.testing.problems import Given, candidate, graph_of, is_lower_bound, random_given
from searchers.dijkstra import DijkstraSearcher
from searchers.lazy.predicted_bounds import PredictedBounds
from tests.searchers.problems import true_costs, watched


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_intervals_that_hold_give_the_eager_cost(seed: int) -> None:
    given_ = random_given(seed)
    true = true_costs(given_)
    problem = given_.problem()
    problem.cost_table.intervals = lambda asked: [
        (0.8 * true[c].seconds, 1.25 * true[c].seconds) if true[c].is_finite else (0.0, float("inf")) for c in asked
    ]
    batches = watched(problem)
    found = DijkstraSearcher(tolerance=0.0, patience=None).search(problem)
    assert found.cost == DijkstraSearcher().search(given_.problem()).cost
    assert is_lower_bound(given_.problem(), found.lower_bound) and batches


def with_intervals(given_: Given, intervals: Mapping[CandidatePartition, tuple[float, float]]) -> SearchProblem:
    problem = given_.problem()
    problem.cost_table.intervals = lambda asked: [intervals[c] for c in asked]
    return problem


def test_learning_from_one_candidate_lifts_no_bound_over_the_interval_of_another() -> None:
    graph = graph_of([[], [0], [1]])
    known = {
        ("x", (0,)): (3.0, 1.4, 3.79),
        ("x", (1,)): (2.8, 1.41, 6.29),
        ("x", (2,)): (3.0, 1.64, 4.83),
        ("y", (0,)): (1.4, 0.58, 1.71),
        ("y", (0, 1)): (3.4, 3.06, 7.65),
        ("y", (0, 1, 2)): (6.8, 2.87, 9.43),
    }
    costs: dict[CandidatePartition, Cost | float] = {candidate(graph, *c): cost for c, (cost, _, _) in known.items()}
    intervals = {candidate(graph, *c): (low, high) for c, (_, low, high) in known.items()}
    found = DijkstraSearcher().search(with_intervals(Given(graph, costs, {}, {}), intervals))
    assert found.cost.seconds == pytest.approx(6.4) and "inside its predicted interval" in found.notes[-1]


def test_no_error_of_others_moves_a_cost_that_is_known() -> None:
    """Two of three take a tenth of what was predicted; the third, over the same nodes, is known."""
    graph = graph_of([[], [0], [1]])
    first, second, known = (candidate(graph, "x", nodes) for nodes in ([0], [1], [0, 1, 2]))
    bounds = PredictedBounds({first: (0.5, 2.0), second: (0.5, 2.0), known: (3.0, 3.0)})
    bounds.learn({first: Cost(0.1), second: Cost(0.1)})
    assert bounds.seconds(known) == 3.0 and bounds.uncertainty(known) == 0.0


def test_a_cost_that_is_known_teaches_nothing_of_predictions() -> None:
    graph = graph_of([[], [0], [1]])
    measured, known, predicted = (candidate(graph, "x", [node]) for node in range(3))
    intervals = {measured: (0.5, 2.0), predicted: (0.5, 2.0)}
    found = []
    for also in ({}, {known: (3.0, 3.0)}):
        bounds = PredictedBounds({**intervals, **also})
        bounds.learn({measured: Cost(0.1), **{c: Cost(low) for c, (low, _) in also.items()}})
        found.append(bounds.seconds(predicted))
    assert found[0] == found[1] < 1.0


def inside_intervals(seed: int, widths: int, widest: float) -> tuple[Given, SearchProblem]:
    """Errors of one backend may all have one sign, so that what is learned misleads; some intervals say nothing."""
    rng = random.Random(widths)
    start = random_given(seed, size=10)
    costs = {
        c: cost if isinstance(cost, Cost) else 1.0 + cost * rng.uniform(0.5, 1.0) for c, cost in start.costs.items()
    }
    given_ = Given(start.graph, costs, start.transitions, start.priorities)
    lean = {backend: rng.random() for backend in ("x", "y", "z")}
    intervals: dict[CandidatePartition, tuple[float, float]] = {}
    for c, cost in true_costs(given_).items():
        below, above = widest ** (rng.random() * lean[c.backend]), widest ** (rng.random() * (1 - lean[c.backend]))
        bounded = cost.is_finite and rng.random() < 0.9
        intervals[c] = (cost.seconds / below, cost.seconds * above) if bounded else (0.0, float("inf"))
    return given_, with_intervals(given_, intervals)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([1.5, 3.0, 8.0]))
def test_costs_anywhere_inside_their_intervals_give_the_eager_cost(seed: int, widths: int, widest: float) -> None:
    given_, problem = inside_intervals(seed, widths, widest)
    found = DijkstraSearcher(tolerance=0.0, patience=None).search(problem)
    assert found.cost == DijkstraSearcher().search(given_.problem()).cost
    assert is_lower_bound(given_.problem(), found.lower_bound)
    assert "not looked for" not in found.notes[-1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([1.5, 8.0]), st.sampled_from([0.01, 0.1, 0.5]))
def test_with_a_tolerance_no_cover_is_cheaper_by_more(seed: int, widths: int, widest: float, tolerance: float) -> None:
    """And what was not looked for is told where the answer is not the best."""
    given_, problem = inside_intervals(seed, widths, widest)
    found = DijkstraSearcher(tolerance=tolerance, patience=None).search(problem)
    best = DijkstraSearcher().search(given_.problem()).cost
    assert found.cost.seconds <= (1 + tolerance) * best.seconds * (1 + 1e-9)
    assert found.cost == best or f"cheaper by up to {tolerance:.0%}" in found.notes[-1]
    assert is_lower_bound(given_.problem(), found.lower_bound)


def test_what_gains_less_than_the_tolerance_is_not_costed() -> None:
    """Every node has a twin that may take a tenth less, and does not."""
    graph = graph_of([[], *([i - 1] for i in range(1, 8))])
    costs: dict[CandidatePartition, Cost | float] = {}
    intervals: dict[CandidatePartition, tuple[float, float]] = {}
    for node in range(8):
        for backend, low in (("x", 1.0), ("y", 0.9)):
            each = candidate(graph, backend, [node])
            costs[each], intervals[each] = 1.0, (low, 1.1)
    asked = {}
    for tolerance in (0.0, 0.2):
        problem = with_intervals(Given(graph, costs, {}, {"x": 1, "y": 2}), intervals)
        batches = watched(problem)
        assert DijkstraSearcher(tolerance=tolerance).search(problem).cost.seconds == 8.0
        asked[tolerance] = sum(map(len, batches))
    assert asked == {0.0: 16, 0.2: 8}


def test_looking_further_ends_when_much_of_it_has_gained_nothing() -> None:
    """Every node has twins that may take less, and do not."""
    graph = graph_of([[], *([i - 1] for i in range(1, 8))])
    costs: dict[CandidatePartition, Cost | float] = {}
    intervals: dict[CandidatePartition, tuple[float, float]] = {}
    for node in range(8):
        for number, backend in enumerate("vwxyz"):
            each = candidate(graph, backend, [node])
            costs[each], intervals[each] = 1.0, (1.0 - 0.1 * number, 1.2 + 0.1 * number)
    asked, notes = {}, {}
    for patience in (None, 7, 100):
        problem = with_intervals(Given(graph, costs, {}, {}), intervals)
        batches = watched(problem)
        found = DijkstraSearcher(patience=patience).search(problem)
        assert found.cost.seconds == 8.0
        asked[patience], notes[patience] = sum(map(len, batches)), found.notes[-1]
    assert asked[7] < asked[100] == asked[None]
    assert notes[7].endswith("no more was costed after 7 workloads that gained nothing")
    assert notes[100] == notes[None] and "inside its predicted interval" in notes[100]


def test_looking_further_goes_on_while_it_gains() -> None:
    """One node after the other turns out to take less on another backend."""
    graph = graph_of([[], *([i - 1] for i in range(1, 8))])
    costs: dict[CandidatePartition, Cost | float] = {}
    intervals: dict[CandidatePartition, tuple[float, float]] = {}
    for node in range(8):
        for backend, seconds, low in (("x", 1.0, 1.0), ("y", 0.5, 0.5)):
            each = candidate(graph, backend, [node])
            costs[each], intervals[each] = seconds, (low, 2.0 + node)
    problem = with_intervals(Given(graph, costs, {}, {"x": 1, "y": 2}), intervals)
    assert DijkstraSearcher(patience=1).search(problem).cost.seconds == pytest.approx(4.0)
