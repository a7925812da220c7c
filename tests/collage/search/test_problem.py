"""SearchProblem: a frozen view whose costs and latencies are memoised in tables."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from collage.cost.cost import Cost
from collage.errors import NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.index_set import IndexSet
from collage.search import CostTable, LatencyTable, Partitioning, SearchProblem
from collage.testing.problems import candidate, graph_of, problem_of

GRAPH = graph_of([[], [0], [1]])
ONE, OTHER, PAIR = candidate(GRAPH, "x", [0]), candidate(GRAPH, "y", [0]), candidate(GRAPH, "x", [0, 1])


def best(costs: dict[CandidatePartition, Cost | float], **priorities: int) -> CandidatePartition | None:
    forth, back = (problem_of(GRAPH, costs, priorities=priorities).best(order) for order in (costs, reversed(costs)))
    assert forth == back, "whatever the order"
    return forth


def test_the_best_of_some_candidates_costs_least_per_node() -> None:
    assert best({ONE: 2.0, OTHER: 1.0}, x=1, y=2) == OTHER
    assert best({ONE: 2.0, PAIR: 3.0}) == PAIR and best({ONE: 2.0, PAIR: 5.0}) == ONE


def test_invalid_candidates_are_never_the_best_and_unknown_ones_come_last() -> None:
    assert best({ONE: Cost.invalid("refused"), OTHER: Cost.unknown()}, x=1, y=2) == OTHER
    assert best({ONE: Cost.unknown(), OTHER: 100.0}, x=1, y=2) == OTHER
    assert best({ONE: Cost.invalid("refused")}) is None and best({}) is None


def test_priority_decides_ties_and_unknown_costs_then_size_then_the_name() -> None:
    assert best({ONE: 1.0, OTHER: 1.0}, x=2, y=1) == OTHER
    assert best({ONE: Cost.unknown(), OTHER: Cost.unknown()}, x=2, y=1) == OTHER
    assert best({ONE: 1.0, PAIR: 2.0}) == PAIR
    assert best({ONE: 1.0, OTHER: 1.0}) == ONE


def test_the_view_is_frozen_and_views_of_other_candidates_share_what_is_known() -> None:
    problem = problem_of(GRAPH, {ONE: 1.0, OTHER: 2.0}, seed=3)
    with pytest.raises(FrozenInstanceError):
        problem.budget_s = 1.0  # type: ignore[misc]
    problem.cost(ONE)
    other = replace(problem, candidates=CandidateSet([ONE]))
    assert other.known(ONE) == Cost(1.0) and other.known(OTHER) is None
    assert other.rng.random() == problem.rng.random(), "each has random numbers of its own, of the same seed"


def test_corrected_costs_know_the_workloads_and_intervals_of_the_others_and_no_cost() -> None:
    table = CostTable(lambda asked: [Cost(1.0)] * len(asked), lambda c: c.backend, lambda asked: [(0.0, 1.0)])
    table.costs([ONE])
    corrected = table.corrected(lambda asked: [Cost(2.0)] * len(asked))
    assert corrected.known(ONE) is None and corrected.costs([ONE]) == [Cost(2.0)] and table.costs([ONE]) == [Cost(1.0)]
    assert corrected.key(ONE) == "x" and corrected.intervals is not None and corrected.intervals([ONE]) == [(0.0, 1.0)]


def test_the_host_is_free_and_never_estimated() -> None:
    host = candidate(GRAPH, HOST, [0])
    asked: list[CandidatePartition] = []
    table = CostTable(lambda batch: [asked.append(c) or Cost(1.0) for c in batch])  # type: ignore[func-returns-value]
    assert table.costs([host, ONE, ONE]) == [Cost.zero(), Cost(1.0), Cost(1.0)]
    assert asked == [ONE] and table.known(host) == Cost.zero()


def test_each_placement_is_run_once_and_fresh_latencies_are_run_again() -> None:
    problem = problem_of(graph_of([[]]), {})
    placement = Partitioning((ONE,), Cost(1.0))
    assert problem.latency(placement).is_unknown and not problem.has_latencies and not problem.latency_table.used
    runs: list[int] = []

    def run(placements: object) -> list[Cost]:
        runs.append(1)
        return [Cost(float(len(runs)))]

    measured = replace(problem, latency_table=LatencyTable(run))
    assert measured.latency(placement) == measured.latency(placement) == Cost(1.0) and measured.latency_table.used
    assert measured.fresh_latencies([placement]) == [Cost(1.0)] and not measured.has_fresh_latencies
    afresh = replace(measured, latency_table=LatencyTable(run, run))
    assert [afresh.fresh_latencies([placement]), afresh.fresh_latencies([placement])] == [[Cost(2.0)], [Cost(3.0)]]


def test_a_partitioning_says_which_costs_are_unknown() -> None:
    costs: dict[CandidatePartition, Cost | float] = {PAIR: 1.0, candidate(GRAPH, "y", [2]): Cost.unknown("no record")}
    problem = problem_of(GRAPH, costs)
    found = problem.partitioning(problem.candidates, notes=["mine"])
    assert found.cost.is_unknown and found.notes == ("mine", "chosen with unknown cost: y{2}")


def test_a_node_whose_candidates_all_fail_is_named_with_the_reasons() -> None:
    problem: SearchProblem = problem_of(GRAPH, {PAIR: 1.0, candidate(GRAPH, "y", [2]): Cost.invalid("refused")})
    problem.require_coverable()
    problem.require_runnable(IndexSet([0, 1]))
    assert problem.known(candidate(GRAPH, "y", [2])) is None, "only what is asked for is costed"
    with pytest.raises(NoCoverError, match=r"y: refused.*node 2"):
        problem.require_runnable()
