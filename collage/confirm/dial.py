"""Dial: the predicted error that placements may have, adjusted until the measured error just keeps the budget.

The predicted error of a placement is a sum of errors of operators, measured one by one (`collage.accuracy.errors`).
They are not quite independent, and how the user's metric depends on them is unknown, so the prediction is only a guide.
The placement that the search finds is therefore run on held-out samples. The dial is turned up or down until the best
placement that keeps the budget and the best one that breaks it are close together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from collage.accuracy.budget import ErrorBudget, Verdict
from collage.accuracy.grant import Grant
from collage.accuracy.levels import int8_levels
from collage.accuracy.table import ErrorTable
from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.confirm.contest import Contest
from collage.confirm.starters import is_hopeless
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.index_set import IndexSet
from collage.search import Partitioning, Searcher, SearchProblem
from collage.search.frontier import Closing, Frontier, FrontierPoint, frontier
from collage.search.phase import Searched, single_backend_baselines

#: How often it is turned, at most.
_TURNS = 6
#: What keeps the budget and what does not are close enough at this ratio of predicted errors.
_CLOSE = 1.1
#: A measured error that is so much below the granted one leaves room for more.
_ROOM = 0.9
#: Where it begins for a metric: most metrics lose nothing there.
_FIRST = 0.02
#: By what it is turned further where there is nothing new, and up to which multiple of a granted error: predictions
#: were seen to be 3 times what was measured.
_FURTHER = 4.0
#: The error of a result that is zero: what errs more is of no use.
_MOST = 1.0
#: Budgets of the frontier, relative to where the dial stands; the gap is closed within the last one.
_SHARES = (0.25, 0.5, 1.0)
#: A gap that is left, which no race of plans could tell, and seconds that may be spent on closing it in each turn.
_TOLERANCE, _CLOSING_S = 0.01, 15.0


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


class Dial:
    """Offers, searches, judges.

    Parameters
    ----------
    problem
        With the candidates of all precisions that the rules find.
    searched
        The answer in float32.

    Attributes
    ----------
    problem
        With those that are offered: in float32 all; of less precision single patterns, the partitions that a backend
        has alone, what float32 was searched to be, and levels of eight bits (`collage.accuracy.levels`).
    frontier
        What was found so far.
    attempts
        What was judged, in this order.
    notes
        Of the search that found most.
    """

    def __init__(
        self,
        grant: Grant,
        searcher: Searcher,
        problem: SearchProblem,
        searched: Searched,
        backends: Mapping[str, Backend],
        session: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.grant = grant
        self.searcher = searcher
        self.backends = backends
        self.session = session
        self.frontier = Frontier()
        self.attempts: list[Attempt] = []
        self.notes: tuple[str, ...] = ()
        self._alone = single_backend_baselines(problem, backends)
        self._covers = _large_partitions(self._alone, searched, backends)
        exact = (c for c in searched.problem.candidates if c.backend == HOST or not backends[c.backend].is_less_precise)
        less = (c for c in problem.candidates if c.backend in backends and backends[c.backend].is_less_precise)
        patterns = (c for c in less if backends[c.backend].style == "library")
        large = (c for name, cover in self._covers.items() if backends[name].is_less_precise for c in cover)
        self.problem = replace(problem, candidates=CandidateSet([*exact, *patterns, *large]))

    def turn(self, contest: Contest) -> None:
        """Until it stands right."""
        budget = self.grant.budget
        kept, lost = 0.0, math.inf  # predicted errors
        wanted: float | None = budget.limit if isinstance(budget, ErrorBudget) else _FIRST
        for _ in range(_TURNS):
            if wanted is None:
                return
            self.offer(wanted)
            point = self._next_point(wanted, kept, lost)
            if point is None:
                wanted = self._further(wanted, lost)
                continue
            attempt = self._judge(point, contest)
            if attempt.keeps:
                kept = max(kept, point.error)
            else:
                lost = min(lost, point.error)
            wanted = self._next(wanted, attempt, kept, lost)

    def judge_engines(self, contest: Contest) -> list[Attempt]:
        """Judge placements on one engine: each that computes in less precision, as it is; each with as much in eight
        bits as was offered; and the fastest one whose predicted error kept the budget. Those that keep it.

        Sums of costs err more between a mixture and an engine that runs the whole network than between mixtures, so
        both race, as they do in float32. Levels of eight bits of the same engine differ by less than their costs are
        off, and the one with most is what tools that quantise whole networks make.
        """
        least = min((a.point.seconds for a in self.attempts if a.keeps), default=math.inf)
        kept = max((a.point.error for a in self.attempts if a.keeps), default=0.0)
        own = [point for name in self._covers if (point := self._on_engine(name, _MOST, as_it_is=True))]
        full = [point for name in self._covers if (point := self._in_eight_bits(name))]
        mixed = [point for name in self._covers if kept > 0.0 and (point := self._on_engine(name, kept))]
        fastest = sorted(mixed, key=lambda point: point.seconds)[:1]
        found = []
        for point in (*own, *full, *fastest):
            if not self._was_judged(point) and not is_hopeless(point.seconds, least):
                found.append(self._judge(point, contest))
        return [attempt for attempt in found if attempt.keeps]

    def _next_point(self, wanted: float, kept: float, lost: float) -> FrontierPoint | None:
        """The fastest placement up to a predicted error; where it was judged before, one between what kept the budget
        and what broke it.
        """
        best = self.frontier.best(wanted)
        if best is not None and not self._was_judged(best):
            return best
        between = [p for p in self.frontier.points if kept < p.error < lost and not self._was_judged(p)]
        return between[len(between) // 2] if between and math.isfinite(lost) else None

    def _was_judged(self, point: FrontierPoint) -> bool:
        return any(a.point.partitioning.candidates == point.partitioning.candidates for a in self.attempts)

    def _judge(self, point: FrontierPoint, contest: Contest) -> Attempt:
        """Measure a placement's error on held-out samples."""
        budget = self.grant.budget
        verdict = contest.verdict(point.partitioning.candidates, budget, self.grant.judged_on)
        self.attempts.append(Attempt(point, verdict, point.error == 0.0 or budget.keeps(verdict)))
        return self.attempts[-1]

    def _on_engine(self, name: str, max_error: float, as_it_is: bool = False) -> FrontierPoint | None:
        """The fastest of a backend's placements of less precision that were offered, up to a predicted error; as it
        is, with nothing in eight bits. That is judged as a whole, so it may have operators of unknown error.
        """
        cover = self._alone.get(f"{name} alone")
        if cover is None:
            return None
        large = {(c.backend, c.sub_graph.inside) for c in cover.candidates}
        offered = (c for c in self.problem.candidates if c.backend == HOST or (c.backend, c.sub_graph.inside) in large)
        problem = replace(self.problem, candidates=CandidateSet(cover.candidates if as_it_is else offered))
        errors = self.grant.errors.finite() if as_it_is else self.grant.errors
        point = frontier(self.searcher, problem, partial(self._squared, errors), [max_error], {}).best(max_error)
        return point if point is not None and point.error > 0.0 else None

    def _in_eight_bits(self, name: str) -> FrontierPoint | None:
        """A backend alone, with the level of most products that was offered of each partition; None where there is
        none, or where no more than its predicted error broke the budget.
        """
        cover = self._alone.get(f"{name} alone")
        levels: dict[tuple[str, IndexSet], CandidatePartition] = {}
        for candidate in self.problem.candidates:
            place = candidate.backend, candidate.sub_graph.inside
            if _int8_count(candidate) > (_int8_count(levels[place]) if place in levels else 0):
                levels[place] = candidate
        if cover is None or not any((c.backend, c.sub_graph.inside) in levels for c in cover.candidates):
            return None
        chosen = [levels.get((c.backend, c.sub_graph.inside), c) for c in cover.candidates]
        squared = math.fsum(self._squared(self.grant.errors, c) for c in chosen)
        point = FrontierPoint(self.problem.partitioning(chosen), squared)
        broke = min((a.point.error for a in self.attempts if not a.keeps), default=_MOST)
        return point if point.partitioning.cost.is_finite and point.error < broke else None

    def offer(self, wanted: float) -> None:
        """Search for placements up to a predicted error, with levels of eight bits around it."""
        covers = self._covers if self.grant.int8 else {}
        levels = int8_levels(self.problem.graph, covers, self.backends, self.grant.errors, wanted)
        self.problem = replace(self.problem, candidates=CandidateSet([*self.problem.candidates, *levels]))
        large = (c for cover in self._covers.values() for c in cover)
        with self.session():
            self.problem.costs([*large, *levels])  # all at once: they are built side by side
            found = frontier(
                self.searcher,
                self.problem,
                partial(self._squared, self.grant.errors),
                [wanted * share for share in _SHARES],
                self.backends,
                closing=Closing((wanted,), _TOLERANCE, _CLOSING_S),
                budget_s=self.problem.budget_s,
            )
        self.frontier = found.with_points(self.frontier.points)  # bounds are of the present candidates
        self.notes = found.points[-1].partitioning.notes if found.points else self.notes

    def _squared(self, errors: ErrorTable, candidate: CandidatePartition) -> float:
        if candidate.backend == HOST:
            return 0.0
        return errors.squared(candidate, self.backends[candidate.backend].precision)

    def _further(self, wanted: float, lost: float) -> float | None:
        """The next predicted error to look at where there was nothing new; None when there is nothing left to find."""
        budget = self.grant.budget
        if math.isfinite(lost):
            return math.sqrt(wanted * lost) if wanted * _CLOSE < lost else None
        furthest = _FURTHER * budget.limit if isinstance(budget, ErrorBudget) else _MOST
        return min(_FURTHER * wanted, furthest) if wanted < furthest else None

    def _next(self, wanted: float, last: Attempt, kept: float, lost: float) -> float | None:
        """The next predicted error to look at, by what was judged last; None when there is nothing left to find."""
        budget, seen = self.grant.budget, last.point.error
        if seen == 0.0 and math.isinf(lost):
            return self._further(wanted, lost)
        if kept > 0.0 and lost <= _CLOSE * kept:
            return None
        if isinstance(budget, ErrorBudget):
            if last.keeps and last.verdict.upper >= _ROOM * budget.limit:
                return None
            scaled = seen * min(max(budget.limit / last.verdict.upper, 0.25), 4.0) if last.verdict.upper else 4 * seen
        else:
            scaled = (_FURTHER if math.isinf(lost) else 2) * seen if last.keeps else seen / 2
        if kept < scaled < lost:
            return scaled
        if math.isinf(lost):
            return None
        return math.sqrt(kept * lost) if kept else lost / 2


def _int8_count(candidate: CandidatePartition) -> int:
    return sum(len(nodes) for label, nodes in candidate.composites if label == INT8)


def _large_partitions(
    alone: Mapping[str, Partitioning], searched: Searched, backends: Mapping[str, Backend]
) -> dict[str, list[CandidatePartition]]:
    """Of each graph backend: the partitions that it has alone, and those of its engine in the searched placement."""
    engines = {name: backend.engine_name for name, backend in backends.items()}
    found = {}
    for name, backend in backends.items():
        if backend.style == "graph":
            cover = alone[f"{name} alone"].candidates if f"{name} alone" in alone else ()
            alike = [
                replace(c, backend=name)
                for c in searched.partitioning.candidates
                if c.backend != HOST and engines[c.backend] == engines[name]
            ]
            found[name] = list(dict.fromkeys(c for c in (*cover, *alike) if c.backend == name))
    return found
