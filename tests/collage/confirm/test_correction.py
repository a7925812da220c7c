"""Residual correction, on made-up problems: what was seen inside the whole corrects what was measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from collage.confirm.confirmation import SEARCHED
from collage.confirm.contest import Trial
from collage.confirm.correction import Corrections, Refined, refine
from collage.cost.cost import Cost
from collage.graph.candidates import CandidatePartition
from collage.search import Partitioning, SearchProblem
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import candidate, graph_of, problem_of, shape

CHAIN = graph_of([[], [0], [1], [2]])
SMALL_A = [candidate(CHAIN, "a", [i]) for i in range(4)]
SMALL_B = [candidate(CHAIN, "b", [i]) for i in range(4)]
WHOLE_B = candidate(CHAIN, "b", range(4))


def _run(inside: Mapping[CandidatePartition, float]) -> Callable[[Partitioning], Trial]:
    """What runs placements: partitions take their seconds inside the whole."""

    def run(placement: Partitioning) -> Trial:
        seconds = tuple(inside[c] for c in placement.partitions)
        return Trial(Cost(sum(seconds), 0.0, 9), seconds)

    return run


def _problem(small_b: float = 2.0) -> SearchProblem:
    """Alone, four small partitions of `a` cost less than one of `b` (4.0 against 4.2)."""
    alone = {c: 1.0 for c in SMALL_A} | {c: small_b for c in SMALL_B} | {WHOLE_B: 4.2}
    return problem_of(CHAIN, alone)


def _refine(
    problem: SearchProblem,
    run: Callable[[Partitioning], Trial],
    rounds: int = 3,
    searches: Sequence[Callable[[SearchProblem], Partitioning | None]] = (DijkstraSearcher().search,),
    found: Partitioning | None = None,
) -> Refined:
    found = found or DijkstraSearcher().search(problem)
    whole = problem.partitioning([WHOLE_B])
    trials = {SEARCHED: run(found), "b alone": run(whole)}
    return refine(problem, searches, found, {"b alone": whole}, trials, run, rounds)


def test_the_search_is_repeated_with_what_partitions_took_inside_until_it_is_stable() -> None:
    inside = {c: 1.5 for c in SMALL_A} | {c: 2.0 for c in SMALL_B} | {WHOLE_B: 4.0}
    refined = _refine(_problem(), _run(inside))
    assert [shape(r.partitioning) == {("b", (0, 1, 2, 3))} for r in refined.rounds] == [False, True]
    assert refined.best == 1
    assert refined.rounds[1].partitioning.cost.seconds == pytest.approx(4.0)
    assert refined.names() == [f"{SEARCHED}, round 1", SEARCHED]
    assert [r.isolated for r in refined.rounds] == pytest.approx([4.0, 4.2])


def test_a_placement_that_keeps_its_promise_is_run_once() -> None:
    inside = {c: 1.0 for c in SMALL_A} | {c: 2.0 for c in SMALL_B} | {WHOLE_B: 4.2}
    refined = _refine(_problem(), _run(inside))
    assert len(refined.rounds) == 1
    assert refined.problem.cost(SMALL_A[0]).seconds == pytest.approx(1.0)


def test_no_rounds_means_one_run() -> None:
    inside = {c: 1.5 for c in SMALL_A} | {WHOLE_B: 4.0}
    assert len(_refine(_problem(), _run(inside), rounds=0).rounds) == 1


def test_the_answer_is_the_round_that_did_best_against_the_baselines() -> None:
    """Corrections make partitions of `b` look cheap that are dear inside: what was run first stays the answer."""
    inside = {c: 1.0 for c in SMALL_A} | {c: 9.0 for c in SMALL_B} | {WHOLE_B: 4.2}
    problem = _problem(1.1)
    search = DijkstraSearcher().search
    mixed = problem.partitioning([SMALL_A[0], SMALL_B[1], SMALL_A[2], SMALL_A[3]])
    answers = iter([mixed])
    refined = _refine(problem, _run(inside), 3, [lambda corrected: next(answers, search(corrected))])
    assert len(refined.rounds) == 2 and refined.best == 0


def test_every_search_has_its_turn_with_what_the_ones_before_it_taught() -> None:
    """The second one is of a pool of threads: what it finds is run, and is the answer when it does best."""
    inside = {c: 1.5 for c in SMALL_A} | {c: 0.9 for c in SMALL_B} | {WHOLE_B: 4.0}
    problem, asked = _problem(1.1), []

    def of_b(corrected: SearchProblem) -> Partitioning:
        asked.append(corrected.cost(WHOLE_B).seconds)
        return corrected.partitioning(SMALL_B)

    searches = [DijkstraSearcher().search, of_b, lambda corrected: None]
    refined = _refine(problem, _run(inside), 3, searches, problem.partitioning(SMALL_A))
    assert [round.partitioning.candidates for round in refined.rounds] == [
        tuple(SMALL_A),
        (WHOLE_B,),
        tuple(SMALL_B),
    ]
    assert refined.best == 2 and asked == pytest.approx([4.0, 4.0])


@pytest.mark.parametrize(("unit", "runs"), [(1e-3, 4), (1.0, 2)])
def test_where_calls_are_short_a_search_goes_on_as_long_as_it_gains(unit: float, runs: int) -> None:
    """The third placement is slower than the second one, so the fourth is not looked for."""
    alone = {c: unit for c in (*SMALL_A, *SMALL_B)} | {WHOLE_B: 4.2 * unit}
    problem = problem_of(CHAIN, alone)
    inside = {c: 1.5 * unit for c in SMALL_A} | {c: 1.2 * unit for c in SMALL_B[:2]} | {WHOLE_B: 4.0 * unit}
    inside |= {c: 2.0 * unit for c in SMALL_B[2:]}
    answers = iter([problem.partitioning([*SMALL_B[:count], *SMALL_A[count:]]) for count in (1, 2, 3, 4)])
    found = problem.partitioning(SMALL_A)
    refined = _refine(problem, _run(inside), 1, [lambda corrected: next(answers)], found)
    assert len(refined.rounds) == runs


def test_a_placement_that_cannot_win_by_its_sum_is_not_run() -> None:
    inside = {c: 1.5 for c in SMALL_A} | {c: 2.0 for c in SMALL_B} | {WHOLE_B: 4.0}
    problem = _problem()

    def of_b(corrected: SearchProblem) -> Partitioning:
        return corrected.partitioning(SMALL_B)

    refined = _refine(problem, _run(inside), 3, [of_b], problem.partitioning(SMALL_A))
    assert len(refined.rounds) == 1


def test_what_was_not_seen_is_scaled_like_its_backend_and_unknown_backends_like_all() -> None:
    problem = _problem()
    corrections = Corrections(problem)
    corrections.learn(SMALL_A[:2], [1.5, 2.5])
    seen, scaled, other = corrections.costs([SMALL_A[0], SMALL_A[2], SMALL_B[0]])
    assert (seen.seconds, scaled.seconds, other.seconds) == pytest.approx((1.5, 2.0, 4.0))


def test_invalid_and_unknown_costs_stay_what_they_are() -> None:
    costs = {SMALL_A[0]: Cost.invalid("crashes"), SMALL_A[1]: Cost.unknown(), SMALL_A[2]: 1.0, SMALL_A[3]: 1.0}
    corrections = Corrections(problem_of(CHAIN, costs))
    corrections.learn([SMALL_A[2]], [2.0])
    invalid, unknown = corrections.costs(SMALL_A[:2])
    assert invalid.is_invalid and invalid.reason == "crashes" and unknown.is_unknown


def test_calls_that_are_not_those_of_the_placement_teach_nothing() -> None:
    corrections = Corrections(_problem())
    corrections.learn(SMALL_A, [1.0, 2.0])
    assert corrections.factor("a") == 1.0
