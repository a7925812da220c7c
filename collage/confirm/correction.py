"""Residual correction: the cost of a partition is replaced by its latency inside a running plan.

A partition that is measured alone has cold weights, and its machine may be slower or faster than it was for the
partition before. What neighbours leave in the caches and do to its threads is missing. An end-to-end run shows the
latency of each partition inside the plan, all in the same minute. These latencies replace the isolated costs of the
partitions that took part. All other costs of the same backend are scaled by the ratio of its partitions, taken
together, inside and alone. Then the search is repeated until it returns a placement that has already been run, and once
more with each set of backends that share their threads (`collage.search.thread_pools`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from collage.confirm.confirmation import SEARCHED
from collage.confirm.contest import Trial
from collage.confirm.starters import SHORT_S
from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.measure.statistics import TIE
from collage.search import Partitioning, SearchProblem

INSIDE = "inside the whole"
#: A search whose every placement is faster than all that were run before goes on, so many times as often as it is
#: meant to be repeated at most. Only where placements are short: so are their trials.
_AS_OFTEN = 4
#: A placement whose corrected costs add up to so many times those of another one is not run: sums err by less.
_HOPELESS = 1.15


@dataclass(frozen=True)
class Round:
    """One placement that was searched and then run.

    Attributes
    ----------
    partitioning
        The placement, with the cost that it was searched with: a prediction, made before it was run.
    isolated
        Seconds, sum of what its partitions cost alone, transitions included; NaN where one is not known.
    trial
        What was seen end to end.
    loss
        Its latency over that of the fastest baseline; infinite when it failed.
    """

    partitioning: Partitioning
    isolated: float
    trial: Trial
    loss: float

    @property
    def latency(self) -> Cost:
        return self.trial.latency


@dataclass(frozen=True)
class Refined:
    """What came of it.

    Attributes
    ----------
    rounds
        The placements that were run.
    problem
        With the corrected costs, in seconds of the first round's machine.
    """

    rounds: tuple[Round, ...]
    problem: SearchProblem

    @property
    def best(self) -> int:
        """The round whose placement was the fastest in its trial."""
        return min(range(len(self.rounds)), key=lambda number: (self.rounds[number].loss, number))

    def names(self) -> list[str]:
        """What the rounds' placements are called among the contestants."""
        return [SEARCHED if n == self.best else f"{SEARCHED}, round {n + 1}" for n in range(len(self.rounds))]

    def corrected(self, number: int) -> float:
        """Seconds: the sum of a placement's costs, corrected by its own run, too."""
        return _total(self.problem, self.rounds[number].partitioning)


class Corrections:
    """Corrected costs, learned from runs end to end."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem
        self._inside: dict[Hashable, list[float]] = defaultdict(list)
        self._sums: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))

    def learn(self, placement: Sequence[CandidatePartition], seconds: Sequence[float]) -> None:
        """Take in what the partitions of one placement, host nodes left out, took inside the whole."""
        partitions = [c for c in placement if c.backend != HOST]
        if len(partitions) != len(seconds):
            return
        for candidate, inside, alone in zip(partitions, seconds, self._problem.costs(partitions), strict=True):
            self._inside[self._key(candidate)].append(inside)
            if alone.is_finite:
                before = self._sums[candidate.backend]
                self._sums[candidate.backend] = (before[0] + inside, before[1] + alone.seconds)

    def factor(self, backend: str) -> float:
        """How much more the partitions of a backend cost inside than alone; that of all backends for one that was not
        seen, and 1 when nothing was.
        """
        sums = [self._sums[backend]] if backend in self._sums else list(self._sums.values())
        inside, alone = sum(s[0] for s in sums), sum(s[1] for s in sums)
        return inside / alone if alone > 0 else 1.0

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        """The corrected cost of each: seconds inside the whole where it was seen there, else scaled."""
        alone = self._problem.costs(candidates)
        return [self._correct(candidate, cost) for candidate, cost in zip(candidates, alone, strict=True)]

    def _correct(self, candidate: CandidatePartition, cost: Cost) -> Cost:
        seen = self._inside.get(self._key(candidate))
        if seen:
            return Cost(sum(seen) / len(seen), cost.spread, cost.samples, INSIDE)
        factor = self.factor(candidate.backend)
        return replace(cost, seconds=cost.seconds * factor, spread=cost.spread * factor) if cost.is_finite else cost

    def _key(self, candidate: CandidatePartition) -> Hashable:
        """Places of one workload share what was seen at any of them: fewer numbers, less noise to be chosen by."""
        return self._problem.workload(candidate)


def refine(
    problem: SearchProblem,
    searches: Sequence[Callable[[SearchProblem], Partitioning | None]],
    found: Partitioning,
    baselines: Mapping[str, Partitioning],
    trials: Mapping[str, Trial],
    run: Callable[[Partitioning], Trial],
    rounds: int,
) -> Refined:
    """Correct the costs by the trials, search again and run what is found, until the answer is stable.

    Parameters
    ----------
    problem
        With isolated costs.
    searches
        Each finds placements for corrected costs, None where there is none; one is done when the next begins.
    found
        The placement searched with isolated costs.
    baselines
        Name -> placement that was run beside it, and whose partitions teach the corrections too.
    trials
        What was seen of `found`, under the name `SEARCHED`, of the baselines, and of who else was run.
    run
        Runs another placement; what it gives is comparable with the trials.
    rounds
        How often each search may be repeated; more often as long as that gains, where calls are short.
    """
    corrections = Corrections(problem)
    best = min(
        (t.latency.seconds for n, t in trials.items() if n != SEARCHED and t.latency.is_finite), default=math.nan
    )
    done: list[Round] = []

    def learn(placement: Partitioning, trial: Trial) -> None:
        latency = trial.latency
        loss = latency.seconds / best if latency.is_finite else math.inf
        done.append(Round(placement, _isolated(problem, placement), trial, 1.0 if math.isnan(loss) else loss))
        corrections.learn(placement.candidates, trial.partition_seconds)

    for name, baseline in baselines.items():
        corrections.learn(baseline.candidates, trials[name].partition_seconds)
    learn(found, trials[SEARCHED])
    corrected = _with_costs(problem, corrections)
    for search in searches:
        for number in range(_AS_OFTEN * rounds):
            if number >= rounds and not _gains(done):
                break
            placement = search(corrected)
            if placement is None or any(placement.candidates == earlier.partitioning.candidates for earlier in done):
                break
            known = min(_total(corrected, other) for other in (found, *baselines.values()))
            if placement.cost.seconds > _HOPELESS * known:
                break
            learn(placement, run(placement))
            corrected = _with_costs(problem, corrections)
    return Refined(tuple(done), corrected)


def _gains(done: Sequence[Round]) -> bool:
    """Whether the last placement is short, and faster by more than a tie than those before it."""
    *before, last = done
    return last.latency.seconds <= SHORT_S and last.loss < (1.0 - TIE) * min(each.loss for each in before)


def _with_costs(problem: SearchProblem, corrections: Corrections) -> SearchProblem:
    """The problem with costs as the corrections have them now."""
    return replace(problem, cost_table=problem.cost_table.corrected(corrections.costs))


def _total(problem: SearchProblem, partitioning: Partitioning) -> float:
    return problem.partitioning(partitioning.candidates).cost.seconds


def _isolated(problem: SearchProblem, partitioning: Partitioning) -> float:
    costs = problem.costs(partitioning.candidates)
    return sum(cost.seconds for cost in costs) + problem.transition_total(partitioning.candidates)
