"""Fitness: the end-to-end latency of covers if there is hardware, their additive cost otherwise.

Every cover is run once, in batches that contain the incumbent, the most promising covers first, so that they can be
measured interleaved. The time that others took shows how many fit into the time that is left. The least of many noisy
latencies is too small (the winner's curse): at the end a few finalists run once more, and only that run decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from collage.cost.cost import Cost
from collage.search import SearchProblem
from searchers.evolution.cover_finder import Cover, CoverFinder

#: A final takes about as long as running so many covers: a handful is compiled again, and timed until it is decided.
_FINAL = 6


class Fitness:
    """Ranks covers of one problem.

    Parameters
    ----------
    latencies
        Of covers that were run, in seconds; is added to.
    deadline
        On the clock of `time.monotonic`.
    """

    def __init__(
        self,
        problem: SearchProblem,
        finder: CoverFinder,
        incumbent: Cover,
        latencies: dict[Cover, Cost],
        deadline: float,
    ) -> None:
        self.measured = problem.has_latencies
        self._problem = problem
        self._finder = finder
        self._incumbent = incumbent
        self._latencies = latencies
        self._deadline = deadline
        self._each_s = 0.0
        self._final: dict[Cover, Cost] = {}

    @property
    def time_left(self) -> float:
        """Seconds until the search has to end."""
        return min(self._deadline - time.monotonic(), self._problem.time_left)

    def is_known(self, cover: Cover) -> bool:
        return not self.measured or cover in self._latencies

    def is_usable(self, cover: Cover) -> bool:
        """Whether the cover was run and gave the right numbers."""
        return self.rank(cover)[0] < math.inf

    def rank(self, cover: Cover) -> tuple[float, int, Cover]:
        """What covers are ordered by, the best first; those that failed, or were not run, come last."""
        seconds = 0.0
        if self.measured:
            latency = self.latency(cover)
            seconds = latency.seconds if latency.is_finite else math.inf
        return (seconds, self._finder.value(cover), cover)

    def latency(self, cover: Cover) -> Cost:
        """What counts of a cover: after the final only what was taken there."""
        return (self._final or self._latencies).get(cover, Cost.unknown("not run"))

    def ties(self, cover: Cover, other: Cover) -> bool:
        """Whether the difference does not count: equal within 2% or the intervals; additive costs tie when equal."""
        if not self.measured:
            return self._finder.value(cover) == self._finder.value(other)
        first, second = self.latency(cover), self.latency(other)
        return not first.is_unknown and not second.is_unknown and first.ties(second)

    @property
    def final_s(self) -> float:
        """Seconds that a final of a few covers may take."""
        return _FINAL * self._each_s if self._problem.has_fresh_latencies else 0.0

    @property
    def finalists(self) -> tuple[Cover, ...]:
        """The covers in the final; empty before it."""
        return tuple(self._final)

    def final(self, covers: Sequence[Cover]) -> None:
        """Run covers once more, interleaved with the incumbent; from now on only these latencies count. Where fresh
        latencies cannot be had, nothing happens.
        """
        if not self._problem.has_fresh_latencies:
            return
        finalists = list(dict.fromkeys([self._incumbent, *covers]))
        placements = [self._problem.partitioning(self._finder.candidates(cover)) for cover in finalists]
        self._final = dict(zip(finalists, self._problem.fresh_latencies(placements), strict=True))

    def affordable(self, at_most: int) -> int:
        """How many covers may be run next: one at least."""
        if self._each_s <= 0 or math.isinf(self.time_left):
            return at_most
        return max(1, min(at_most, int((self.time_left - self.final_s) / self._each_s)))

    def recall(self) -> None:
        """Make latencies from a checkpoint comparable with those to come: run the incumbent, and scale the others by
        how much it takes now.
        """
        before = self._latencies.get(self._incumbent)
        now = self._run([])[0]
        if before is None or not (before.is_finite and now.is_finite) or before.seconds <= 0:
            return
        factor = now.seconds / before.seconds
        for cover, cost in self._latencies.items():
            if cost.is_finite:
                self._latencies[cover] = Cost(cost.seconds * factor, cost.spread * factor, cost.samples, cost.reason)

    def run(self, covers: Sequence[Cover]) -> None:
        """Take the latencies of covers that are not known, the incumbent with them."""
        if not self.measured or not covers:
            return
        begin = time.monotonic()
        for cover, latency in zip([self._incumbent, *covers], self._run(covers), strict=True):
            self._latencies.setdefault(cover, latency)
        self._each_s = max(self._each_s, (time.monotonic() - begin) / len(covers))

    def _run(self, covers: Sequence[Cover]) -> list[Cost]:
        return self._problem.latencies(
            [self._problem.partitioning(self._finder.candidates(cover)) for cover in (self._incumbent, *covers)]
        )
