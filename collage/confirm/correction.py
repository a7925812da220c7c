"""Residual correction: what partitions cost inside the whole corrects what they cost alone.

A partition alone is timed with cold weights, on a machine that may be slower or faster than it was when the one before
was timed, and without what its neighbours leave in the caches and do to its threads. After a run end to end it is known
what each partition of that placement took inside it, all in the same minute. Those numbers replace the isolated costs
of the partitions that took part; all other costs of the same backend are scaled by how much its partitions, taken
together, cost more or less inside than alone. Then the search is repeated, until it answers with what has been run; and
once more with each set of backends that share their threads (`collage.search.thread_pools`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from collage.confirm.contest import SEARCHED, Confirmation
from collage.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import Partitioning, SearchProblem

INSIDE = "inside the whole"
#: A placement whose corrected costs add up to so many times those of another one is not run: sums err by less.
_HOPELESS = 1.15


@dataclass(frozen=True)
class Round:
    """One placement that was searched and then run.

    Attributes
    ----------
    partitioning
        The placement, with the cost that it was searched with.
    isolated
        Seconds, sum of what its partitions cost alone, transitions included; NaN where one is not known.
    confirmation
        What was seen end to end, of it and of its baselines.
    """

    partitioning: Partitioning
    isolated: float
    confirmation: Confirmation

    @property
    def latency(self) -> Cost:
        return self.confirmation.of(SEARCHED).latency

    @property
    def loss(self) -> float:
        """End-to-end latency over that of the fastest baseline, by runs that followed each other; infinite when it
        failed, or was stopped early.
        """
        ratios = {r.name: r.ratio[0] for r in self.confirmation.contestants if r.ratio is not None}
        own = ratios.pop(SEARCHED, float("inf"))
        return own / min(ratios.values()) if ratios else own


@dataclass(frozen=True)
class Refined:
    """What came of it.

    Attributes
    ----------
    rounds
        The placements that were run.
    best
        Which of them is the answer.
    problem
        With the corrected costs, in seconds of the first round's machine.
    corrected
        Seconds, the sum of the answer's corrected costs, on the machine as fast as it was in the answer's round.
    """

    rounds: tuple[Round, ...]
    best: int
    problem: SearchProblem
    corrected: float

    @property
    def answer(self) -> Round:
        return self.rounds[self.best]


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
    run: Callable[[Mapping[str, Partitioning]], Confirmation],
    rounds: int,
) -> Refined:
    """Run the searched placement against the baselines, correct the costs, search again, until the answer is stable.

    Parameters
    ----------
    problem
        With isolated costs.
    searches
        Each finds placements for corrected costs, None where there is none; one is done when the next begins.
    found
        The placement searched with isolated costs.
    baselines
        Name -> placement that takes part in every round, and whose partitions teach the corrections too.
    run
        Runs placements interleaved, `SEARCHED` among them.
    rounds
        How often each search may be repeated.

    Returns
    -------
    All rounds; the answer is the one whose placement lost least to, or won most over, the baselines in its own round.
    """
    corrections = Corrections(problem)
    corrected = _with_costs(problem, corrections)
    done: list[Round] = []

    def learn(found: Partitioning) -> None:
        nonlocal corrected
        confirmation = run({SEARCHED: found, **baselines})
        done.append(Round(found, _isolated(problem, found), confirmation))
        scale = _scale(done[0].confirmation, confirmation)
        for name, placement in {SEARCHED: found, **baselines}.items():
            seconds = confirmation.of(name).partition_seconds
            corrections.learn(placement.candidates, [s * scale for s in seconds])
        corrected = _with_costs(problem, corrections)

    learn(found)
    for search in searches:
        for _ in range(rounds):
            placement = search(corrected)
            if placement is None or any(placement.candidates == earlier.partitioning.candidates for earlier in done):
                break
            if placement.cost.seconds > _HOPELESS * min(
                _total(corrected, other) for other in (found, *baselines.values())
            ):
                break
            learn(placement)
    best = min(range(len(done)), key=lambda i: (done[i].loss, i))
    total = _total(corrected, done[best].partitioning)
    return Refined(tuple(done), best, corrected, total / _scale(done[0].confirmation, done[best].confirmation))


def _with_costs(problem: SearchProblem, corrections: Corrections) -> SearchProblem:
    """The problem with costs as the corrections have them now."""
    return replace(problem, cost_table=problem.cost_table.corrected(corrections.costs))


def _total(problem: SearchProblem, partitioning: Partitioning) -> float:
    return problem.partitioning(partitioning.candidates).cost.seconds


def _isolated(problem: SearchProblem, partitioning: Partitioning) -> float:
    costs = problem.costs(partitioning.candidates)
    return sum(cost.seconds for cost in costs) + problem.transition_total(partitioning.candidates)


def _scale(first: Confirmation, now: Confirmation) -> float:
    """How much faster the machine was in the first round, by the fastest baseline of that round."""
    known = {r.name: r.latency for r in now.contestants if r.name != SEARCHED and r.latency.is_finite}
    both = [r for r in first.contestants if r.latency.is_finite and r.name in known]
    if not both:
        return 1.0
    anchor = min(both, key=lambda r: r.latency.seconds)
    return anchor.latency.seconds / known[anchor.name].seconds
