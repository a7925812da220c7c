"""Drift: a machine takes longer for a fixed piece of arithmetic than others of the same fingerprint.

Its clock may be lowered, for heat or by an administrator, or a neighbour may hold its processors. Before and after each
job a worker times the canary of `collage.measure.conditions`. The faster of both counts, and of each worker the median
of the last few. It is compared with the median of the others: with two workers the slower one drifts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from statistics import median

from collage.cost.disturbance import LIMITS
from collage.measure.conditions import CANARY

#: Canaries of a worker that count, and how many it has to have given.
_LAST, _LEAST = 5, 3
_RUNS = 25


def canary_seconds() -> float:
    """Of the fastest of some runs: those that were interrupted do not count."""
    taken = []
    for _ in range(_RUNS):
        begin = time.perf_counter()
        pow(*CANARY)
        taken.append(time.perf_counter() - begin)
    return min(taken)


class Drift:
    """The canaries of all workers."""

    def __init__(self) -> None:
        self._canaries: dict[str, deque[float]] = {}

    def add(self, worker: str, seconds: float) -> float:
        """How many times as long as on the others the canary takes on a worker that has just given another one; 1 where
        that is not known yet.
        """
        self._canaries.setdefault(worker, deque(maxlen=_LAST)).append(seconds)
        own = self._canaries[worker]
        others = [median(c) for name, c in self._canaries.items() if name != worker and len(c) >= _LEAST]
        return median(own) / median(others) if others and len(own) >= _LEAST else 1.0

    def forget(self, workers: Iterable[str]) -> None:
        """Their canaries count no more."""
        for worker in workers:
            self._canaries.pop(worker, None)


def has_drifted(ratio: float) -> bool:
    """Whether results from such a worker cannot be compared with the others'."""
    return ratio > LIMITS["canary"]
