"""The fastest placement that keeps an error budget: searched by predicted errors, judged by measured ones.

Errors of operators are measured one by one and added up (`collage.accuracy.errors`); they are not quite independent, and
how the user's metric follows from them is not known at all. So the predicted error up to which placements are offered
is a dial: what it finds is run on held-out samples, and the dial is turned up or down, until what keeps the budget and
what does not are close together. Those that keep it race; where none does, the decision is of float32 (`confirm`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import msgspec

from collage.accuracy.budget import Budget, ErrorBudget, Verdict
from collage.accuracy.grant import Grant
from collage.accuracy.levels import int8_levels
from collage.backends.base import Backend
from collage.confirm.contest import SEARCHED
from collage.confirm.decision import Decision, decide
from collage.confirm.run import Contest
from collage.deployed.plan_runner import Placement
from collage.errors import NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.precision import INT8
from collage.search import Searcher, SearchProblem
from collage.search.frontier import Frontier, FrontierPoint, frontier
from collage.search.phase import search, single_backend_baselines

#: How often the dial is turned, at most.
_TURNS = 6
#: What keeps the budget and what does not are close enough at this ratio of predicted errors.
_CLOSE = 1.1
#: A measured error that is so much below the granted one leaves room for more.
_ROOM = 0.9
#: Where the dial begins for a metric: most metrics lose nothing there.
_FIRST = 0.02
#: Accepted placements that race.
_RACE = 3


@dataclass(frozen=True)
class Attempt:
    """A placement that was judged.

    Attributes
    ----------
    point
        The placement with its costs and its predicted error.
    verdict
        What was measured on held-out samples; infinite where it does not run.
    keeps
        Whether it keeps the budget.
    """

    point: FrontierPoint
    verdict: Verdict
    keeps: bool


@dataclass(frozen=True)
class Within:
    """How a decision keeps a budget.

    Attributes
    ----------
    budget
        What was granted.
    frontier
        All placements that were found, by predicted errors, with proven bounds.
    attempts
        Those that were judged, in this order.
    shipped
        The attempt that ships; None where it is float32.
    """

    budget: Budget
    frontier: Frontier
    attempts: tuple[Attempt, ...]
    shipped: Attempt | None


def decide_within(
    grant: Grant,
    searcher: Searcher,
    problem: SearchProblem,
    backends: Mapping[str, Backend],
    contest: Contest | None,
    correction_rounds: int,
    session: Callable[[], AbstractContextManager[None]],
) -> tuple[Decision, Within]:
    """Decide what ships within a budget; by predictions alone where there is no contest.

    Parameters
    ----------
    problem
        With candidates of all precisions; those with products in eight bits are added here.

    Raises
    ------
    NoCoverError, CollageError
        As of `collage.confirm.decision.confirm`.
    """
    judge = _Judge(grant, searcher, problem, backends, contest, session)
    if contest is None:
        return _settle_within(judge)
    return _confirm_within(judge, contest, correction_rounds)


def _confirm_within(judge: _Judge, contest: Contest, correction_rounds: int) -> tuple[Decision, Within]:
    """Run what is expected to keep the budget; those that do race, beside float32 on single backends."""
    judge.run()
    kept = sorted((a for a in judge.attempts if a.keeps), key=lambda a: a.point.partitioning.cost.seconds)
    exact = {name: b for name, b in judge.backends.items() if not b.is_less_precise}
    if not kept:
        decision = _in_float32(judge, exact, contest, correction_rounds)
        return replace(decision, notes=(*decision.notes, *_closest(judge))), judge.within(None)
    names = [SEARCHED if n == 0 else f"{SEARCHED}, {n + 1}" for n in range(min(_RACE, len(kept)))]
    attempts = dict(zip(names, kept, strict=False))
    baselines = single_backend_baselines(_of(judge.problem, exact), exact)
    found = kept[0].point.partitioning
    without = contest.hopeless(judge.problem, found, baselines)
    raced = {name: cover for name, cover in baselines.items() if name not in without}
    placements: dict[str, Placement] = {
        **{name: a.point.partitioning.candidates for name, a in attempts.items()},
        **{name: cover.candidates for name, cover in raced.items()},
    }
    confirmation = contest.decide(placements, contest.trial(placements))
    confirmation, answer = confirmation.with_answer(names)
    searched = kept[answer]
    choice = confirmation.shipped
    shipped = searched if choice == SEARCHED else None
    decision = Decision(
        choice=choice,
        shipped=searched.point.partitioning if shipped is not None else raced.get(choice),
        searched=searched.point.partitioning,
        problem=judge.problem,
        notes=searched.point.partitioning.notes,
        confirmation=msgspec.structs.replace(confirmation, contestants=(*confirmation.contestants, *without.values())),
    )
    return decision, judge.within(shipped)


def _settle_within(judge: _Judge) -> tuple[Decision, Within]:
    """The fastest placement whose predicted error is within the budget."""
    grant = judge.grant
    judge.offer(grant.budget.widest)
    point = judge.frontier.best(grant.budget.widest)
    if point is None:
        raise NoCoverError("no placement has a predicted error within the budget: add a backend of float32")
    found = point.partitioning
    note = f"the error is predicted ({point.error:.2%}), and was not measured"
    return Decision(SEARCHED, found, found, judge.problem, (*found.notes, note)), judge.within(None)


class _Judge:
    """Turns the dial."""

    def __init__(
        self,
        grant: Grant,
        searcher: Searcher,
        problem: SearchProblem,
        backends: Mapping[str, Backend],
        contest: Contest | None,
        session: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.grant = grant
        self.searcher = searcher
        self.problem = problem
        self.backends = backends
        self.contest = contest
        self.session = session
        self.frontier = Frontier((), ())
        self.attempts: list[Attempt] = []

    def within(self, shipped: Attempt | None) -> Within:
        return Within(self.grant.budget, self.frontier, tuple(self.attempts), shipped)

    def run(self) -> None:
        budget = self.grant.budget
        kept, lost = 0.0, math.inf  # predicted errors
        dial: float | None = budget.limit if isinstance(budget, ErrorBudget) else _FIRST
        for _ in range(_TURNS):
            if dial is None:
                return
            self.offer(dial)
            point = self.frontier.best(dial)
            if point is None:
                return
            if any(a.point.partitioning.candidates == point.partitioning.candidates for a in self.attempts):
                return
            attempt = self._judged(point)
            self.attempts.append(attempt)
            if attempt.keeps:
                kept = max(kept, point.error)
            else:
                lost = min(lost, point.error)
            dial = self._turned(attempt, kept, lost)

    def offer(self, dial: float) -> None:
        """Search for placements up to a predicted error, with levels of eight bits around it."""
        covers = {
            name.removesuffix(" alone"): cover.candidates
            for name, cover in single_backend_baselines(_unlabelled(self.problem), self.backends).items()
        }
        covers = {name: cover for name, cover in covers.items() if self.backends[name].style == "graph"}
        if not self.grant.int8:
            covers = {}
        levels = int8_levels(self.problem.graph, covers, self.backends, self.grant.errors, dial)
        self.problem = replace(self.problem, candidates=CandidateSet([*self.problem.candidates, *levels]))
        with self.session():
            found = frontier(
                self.searcher,
                self.problem,
                self._squared,
                [dial * share for share in (0.25, 0.5, 1.0)],
                self.backends,
                budget_s=self.problem.budget_s,
            )
        self.frontier = self.frontier.merged(found)

    def _squared(self, candidate: CandidatePartition) -> float:
        if candidate.backend == HOST:
            return 0.0
        return self.grant.errors.squared(candidate, self.backends[candidate.backend].precision)

    def _judged(self, point: FrontierPoint) -> Attempt:
        assert self.contest is not None
        verdict = self.contest.verdict(point.partitioning.candidates, self.grant.budget, self.grant.judged_on)
        return Attempt(point, verdict, self.grant.budget.keeps(verdict))

    def _turned(self, last: Attempt, kept: float, lost: float) -> float | None:
        """The next predicted error to look at; None when there is nothing left to find."""
        budget, seen = self.grant.budget, last.point.error
        if seen == 0.0 or (kept > 0.0 and lost <= _CLOSE * kept):
            return None
        if isinstance(budget, ErrorBudget):
            if last.keeps and last.verdict.upper >= _ROOM * budget.limit:
                return None
            wanted = seen * min(max(budget.limit / last.verdict.upper, 0.25), 4.0) if last.verdict.upper else 4 * seen
        else:
            wanted = 2 * seen if last.keeps else seen / 2
        between = math.sqrt(kept * lost) if kept and math.isfinite(lost) else lost / 2
        return wanted if kept < wanted < lost else (between if math.isfinite(between) else None)


def _unlabelled(problem: SearchProblem) -> SearchProblem:
    return replace(
        problem, candidates=CandidateSet(c for c in problem.candidates if all(n != INT8 for n, _ in c.composites))
    )


def _of(problem: SearchProblem, backends: Mapping[str, Backend]) -> SearchProblem:
    """The problem without what is less precise."""
    return replace(_unlabelled(problem), candidates=_unlabelled(problem).candidates.of_backends(backends))


def _in_float32(
    judge: _Judge, exact: Mapping[str, Backend], contest: Contest, correction_rounds: int
) -> Decision:
    own = _of(judge.problem, exact)
    with judge.session():
        searched = search(judge.searcher, own, exact)
    return decide(judge.searcher, searched, exact, contest, correction_rounds, judge.session)


def _closest(judge: _Judge) -> list[str]:
    """What came closest to the budget, for the summary."""
    if not judge.attempts:
        return ["nothing of less precision is expected to keep the budget: float32 ships"]
    best = min(judge.attempts, key=lambda a: a.verdict.upper)
    return [
        f"no placement of less precision kept the budget of {judge.grant.budget.limit:.3%} on held-out samples: float32 "
        f"ships; the closest had {best.verdict.value:.3%} (at most {best.verdict.upper:.3%})"
    ]
