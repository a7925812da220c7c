"""What is judged within an error budget: turns of the dial, and the placement on one engine beside a mixture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest

from collage.accuracy.budget import Budget, ErrorBudget, MetricBudget, Verdict
from collage.accuracy.grant import Grant
from collage.accuracy.table import ErrorTable
from collage.annotations.precision import BF16, INT8
from collage.backends.base import Availability, Backend
from collage.confirm.contest import Contest
from collage.confirm.dial import Dial
from collage.cost.cost import Cost
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.index_set import IndexSet
from collage.rules import PartitionRule, graph_rule
from collage.search import CostTable, Partitioning, SearchProblem
from collage.search.phase import Searched
from collage.testing.problems import candidate, graph_of, shape
from searchers.dijkstra import DijkstraSearcher

LIMIT = 0.05


class Fake(Backend):
    """Takes anything."""

    makes_blobs = False

    def __init__(self, name: str, style: str, precision: str = "float32") -> None:
        self.name, self.style, self.precision = name, style, precision  # type: ignore[misc,assignment]

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        return graph_rule(lambda node: True)


BACKENDS: dict[str, Backend] = {
    "plain": Fake("plain", "native"),
    "patterns": Fake("patterns", "library", BF16),
    "engine": Fake("engine", "graph", BF16),
}


class Judge:
    """A contest that knows what each placement errs, and remembers how many nodes each backend had."""

    def __init__(self, patterns: Sequence[float], engine: float = 1.0) -> None:
        """What so many nodes as patterns err, and what the engine does."""
        self.errors = {"patterns": patterns, "engine": (0.0, 0.0, 0.0, engine)}
        self.judged: list[dict[str, int]] = []

    def verdict(self, placement: tuple[CandidatePartition, ...], budget: Any, judged_on: str) -> Verdict:
        self.judged.append(Counter(c.backend for c in placement for _ in c.sub_graph.inside))
        error = max(errors[self.judged[-1][name]] for name, errors in self.errors.items())
        return Verdict(error, error, 4)


def dial(engine_s: float, pattern_errors: tuple[float, ...] = (0.0001, 0.0001, 0.0001)) -> Dial:
    """Three nodes: each in float32 (1 s) or as a pattern (0.1, 0.2 and 0.3 s); all of them on an engine."""
    graph = graph_of([[], [0], [1]])
    found = [candidate(graph, "plain", [node]) for node in range(3)]
    found += [candidate(graph, "patterns", [node], "pattern") for node in range(3)]
    found.append(candidate(graph, "engine", range(3)))
    seconds = {"plain": (1.0, 1.0, 1.0), "patterns": (0.1, 0.2, 0.3), "engine": (engine_s, 0.0, 0.0)}

    def estimate(asked: Sequence[CandidatePartition]) -> list[Cost]:
        return [Cost(sum(seconds[c.backend][node] for node in c.sub_graph.inside)) for c in asked]

    problem = SearchProblem(graph, CandidateSet(found), CostTable(estimate))
    exact = {"plain": BACKENDS["plain"]}
    searcher = DijkstraSearcher()
    plain = SearchProblem(graph, problem.candidates.of_backends(exact), problem.cost_table)
    errors = ErrorTable({BF16: dict(enumerate(pattern_errors))})
    grant = Grant(ErrorBudget(LIMIT, (), ()), errors, False, "")
    return Dial(grant, searcher, problem, Searched(searcher.search(plain), plain), BACKENDS, nullcontext)


def test_beside_a_mixture_the_placement_on_one_engine_is_judged() -> None:
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03), engine=0.03), dial(0.7)
    tuned.turn(cast(Contest, judge))
    assert judge.judged == [{"patterns": 3}]
    (found,) = tuned.judge_engines(cast(Contest, judge))
    assert found.keeps and found is tuned.attempts[-1]
    assert shape(found.point.partitioning) == {("engine", (0, 1, 2))} and judge.judged[1:] == [{"engine": 3}]


@pytest.mark.parametrize("engine_s", [0.5, 60.0], ids=["it was judged", "it is hopeless"])
def test_an_engine_is_not_judged_twice_nor_without_hope(engine_s: float) -> None:
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03), engine=0.03), dial(engine_s)
    tuned.turn(cast(Contest, judge))
    before = len(judge.judged)
    assert tuned.judge_engines(cast(Contest, judge)) == [] and len(judge.judged) == before


def test_where_nothing_kept_the_budget_no_engine_is_judged() -> None:
    judge, tuned = Judge((0.0, 1.0, 1.0, 1.0)), dial(0.7)
    tuned.turn(cast(Contest, judge))
    assert not any(attempt.keeps and attempt.point.error > 0 for attempt in tuned.attempts)
    assert tuned.judge_engines(cast(Contest, judge)) == []


def test_an_engine_is_judged_above_what_kept_the_budget_too() -> None:
    """Where only one pattern keeps the budget, the engine is predicted to break it, and does not."""
    judge, tuned = Judge((0.0, 0.01, 0.2, 0.2), engine=0.03), dial(1.9)
    tuned.turn(cast(Contest, judge))
    assert not any("engine" in seen for seen in judge.judged)
    (found,) = tuned.judge_engines(cast(Contest, judge))
    assert shape(found.point.partitioning) == {("engine", (0, 1, 2))} and found.keeps


def test_an_engine_is_judged_where_an_operator_cannot_be_measured_alone() -> None:
    """Such as a recurrent layer, which gives several values: no search finds a placement with it."""
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03), engine=0.03), dial(1.3, (0.0001, 0.0001, math.inf))
    tuned.turn(cast(Contest, judge))
    assert not any("engine" in seen for seen in judge.judged)
    (found,) = tuned.judge_engines(cast(Contest, judge))
    assert shape(found.point.partitioning) == {("engine", (0, 1, 2))} and found.keeps


def test_an_engine_is_judged_with_as_much_in_eight_bits_as_was_offered() -> None:
    """The level of two nodes was measured to be the fastest by accident."""
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03), engine=0.03), dial(0.7)
    levels = [
        replace(c, composites=((INT8, IndexSet(range(count))),))
        for c in tuned.problem.candidates
        if c.backend == "engine"
        for count in (1, 2, 3)
    ]
    costs = dict(zip(levels, (0.69, 0.65, 0.66), strict=True))
    before = tuned.problem.costs
    table = CostTable(lambda asked: [Cost(costs[c]) if c in costs else before([c])[0] for c in asked])
    tuned.problem = replace(
        tuned.problem, candidates=CandidateSet([*tuned.problem.candidates, *levels]), cost_table=table
    )
    errors = dict.fromkeys(range(3), 1e-4)
    tuned.grant = replace(tuned.grant, errors=ErrorTable({BF16: errors, INT8: errors}))
    tuned.turn(cast(Contest, judge))
    found = [attempt.point.partitioning.candidates for attempt in tuned.judge_engines(cast(Contest, judge))]
    assert (levels[2],) in found


class Counting(DijkstraSearcher):
    """Notes how many candidates a search had."""

    def search(self, problem: SearchProblem) -> Partitioning:
        return replace(super().search(problem), notes=(f"of {len(problem.candidates)}",))


def test_notes_are_of_the_search_among_all_candidates_and_not_of_one_engine() -> None:
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03), engine=0.03), dial(0.7)
    tuned.searcher = Counting()
    tuned.turn(cast(Contest, judge))
    (found,) = tuned.judge_engines(cast(Contest, judge))
    counts = [int(note.removeprefix("of ")) for note in (*tuned.notes, *found.point.partitioning.notes)]
    assert counts[0] >= len(tuned.problem.candidates) > counts[1]


def _metric(outputs: object, label: object) -> float:
    raise AssertionError("the judge knows")


@pytest.mark.parametrize("budget", [ErrorBudget(LIMIT, (), ()), MetricBudget(LIMIT, (), (), _metric, ())])
def test_where_nothing_is_within_the_first_guess_it_looks_further(budget: Budget) -> None:
    """Predictions are upper guesses: each pattern is predicted to err by 0.1, and errs by 0.01."""
    judge, tuned = Judge((0.0, 0.01, 0.02, 0.03)), dial(9.0, (0.01, 0.01, 0.01))
    tuned.grant = replace(tuned.grant, budget=budget)
    tuned.turn(cast(Contest, judge))
    assert max(a.point.error for a in tuned.attempts if a.keeps) == pytest.approx(0.01**0.5 * 3**0.5)


def test_by_a_metric_it_comes_to_the_fastest_that_there_is() -> None:
    """Which errs 50 times as much as the first guess allows, by prediction, and loses nothing."""
    judge, tuned = Judge((0.0, 0.0, 0.0, 0.0)), dial(9.0, (0.0003, 0.03, 0.9))
    tuned.grant = replace(tuned.grant, budget=MetricBudget(LIMIT, (), (), _metric, ()))
    tuned.turn(cast(Contest, judge))
    assert judge.judged[-1] == {"patterns": 3} and tuned.attempts[-1].keeps


def test_between_what_kept_the_budget_and_what_broke_it_nothing_is_passed_over() -> None:
    """Predicted are 0.02, 0.029 and 0.037; the last one is far worse than predicted, and the first guess below that is
    float32.
    """
    judge, tuned = Judge((0.0, 0.02, 0.046, 0.2)), dial(9.0, (4.0e-4, 4.4e-4, 5.0e-4))
    tuned.turn(cast(Contest, judge))
    assert [seen["patterns"] for seen in judge.judged] == [3, 0, 2]
    assert max(a.point.squared_error for a in tuned.attempts if a.keeps) == pytest.approx(8.4e-4)
