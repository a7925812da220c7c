"""Conditions: the state of the machine while something was timed: other processes, a hypervisor, a slower clock, cores
that are far from each other.

    watch = Watch()
    with watch:
        ...  # take samples
    if watch.conditions.disturbed:
        ...  # take them again

The load average reacts within a minute, but samples take milliseconds. So the time in which processors were not idle is
read around the samples, and the time that this process used itself is taken off. Linux only; elsewhere nothing is ever
disturbed.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import NamedTuple, TypeVar

from collage.cost.disturbance import LIMITS, was_disturbed
from collage.measure.core_to_core import core_to_core

#: How long samples are repeated for: so many seconds, and this share of the time that sampling took besides; the second
#: one is for samples of short calls, which are soon taken, and which a disturbance changes most.
REPEATED_S = 1.0
REPEATED_SHARE, REPEATED_SHARE_SHORT = 0.25, 1.0

Taken = TypeVar("Taken")

#: A modular power: a tenth of a millisecond of arithmetic, in registers and the nearest cache, with no library.
CANARY = (3, (1 << 256) - 1, (1 << 256) - 189)
_CANARY_RUNS = 5
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Conditions:
    """What the machine was like during some samples.

    Attributes
    ----------
    load
        Share of the processors' time that other processes used.
    steal
        Share of the processors' time that the hypervisor gave to other guests.
    canary
        Time of a fixed piece of arithmetic over its best in this process, before or after the samples, whichever was
        faster: threads of ours may have been awake still. 0 where it was not run.
    core_to_core
        Latency between processors over its least, before or after the samples, whichever was larger
        (`collage.measure.core_to_core`). 0 where it is not known.
    """

    load: float = 0.0
    steal: float = 0.0
    canary: float = 0.0
    core_to_core: float = 0.0

    @property
    def disturbance(self) -> float:
        """How bad they are: 1 is what is just tolerated."""
        found: dict[str, float] = asdict(self)
        return max(found[name] / limit for name, limit in LIMITS.items())

    @property
    def disturbed(self) -> bool:
        """Whether samples taken in these conditions should be taken again."""
        return was_disturbed(asdict(self))

    def as_dict(self) -> dict[str, float]:
        """For records."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


class _Reading(NamedTuple):
    """Seconds since some moment in the past: of the clock, and of all processors that this process may use."""

    clock: float
    idle: float
    stolen: float
    ours: float


def disturbance_notes(conditions: Sequence[Conditions]) -> list[str]:
    """What a reader of a plan has to know of the conditions in which its candidates were measured."""
    disturbed = [found for found in conditions if found.disturbed]
    if not disturbed:
        return []
    load, steal, canary, apart = (median(getattr(c, name) for c in disturbed) for name in LIMITS)
    return [
        f"{len(disturbed)} of {len(conditions)} candidates were measured on a disturbed machine, in the calmest of the "
        f"samples taken: others used {load:.0%} of the processors, a hypervisor {steal:.0%}, and arithmetic took "
        f"{canary:.2f} and a message between cores {apart:.2f} times its best (medians)"
    ]


class Watch:
    """Notes the conditions between entering and leaving; to be used again for the next samples, since it remembers
    the best time of its canary.

    Attributes
    ----------
    processes
        Numbers of processes, besides this one, whose processor time is ours.
    conditions
        Those of the samples watched last.
    """

    def __init__(self, processes: Sequence[int] = ()) -> None:
        self.processes = tuple(processes)
        self.conditions = Conditions()
        self._best = math.inf
        self._before: tuple[float, float, _Reading] | None = None

    def __enter__(self) -> Watch:
        self._before = (core_to_core(), self._canary(), _read(self.processes)) if _STAT.exists() else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        apart, canary, before = self._before
        load, steal = _shares(before, _read(self.processes))
        canary = min(canary, self._canary())
        self.conditions = Conditions(load, steal, canary / self._best, max(apart, core_to_core()))

    def _canary(self) -> float:
        """Seconds of the fastest of a few runs: a single one that was interrupted does not count."""
        fastest = math.inf
        for _ in range(_CANARY_RUNS):
            begin = time.perf_counter()
            pow(*CANARY)
            fastest = min(fastest, time.perf_counter() - begin)
        self._best = min(self._best, fastest)
        return fastest


class Repeats:
    """Takes samples again that were disturbed, for as long as that costs little.

    On a machine that is always busy nothing is gained by repeating, so repeats are limited to a share of the time that
    sampling took so far.
    """

    def __init__(self) -> None:
        self._watch = Watch()
        self._left = REPEATED_S

    def calmest(self, take: Callable[[], Taken], share: float = REPEATED_SHARE) -> tuple[Taken, Conditions]:
        """What `take` returns when it is called in the best conditions, and those; this share of the time that it takes
        may be spent on repeats, now or later.
        """
        best: tuple[Taken, Conditions] | None = None
        while True:
            begin = time.monotonic()
            with self._watch:
                taken = take()
            seconds, found = time.monotonic() - begin, self._watch.conditions
            self._left += share * seconds if best is None else -seconds
            if best is None or found.disturbance < best[1].disturbance:
                best = taken, found
            if not best[1].disturbed or seconds > self._left:
                return best


def _shares(before: _Reading, after: _Reading) -> tuple[float, float]:
    """Load and steal between two readings.

    The kernel tells idle and stolen time in ticks. What may be an error of those does not count: in a few
    milliseconds nothing is noticed, in 100 a busy neighbour is.
    """
    count = len(_processors())
    total = (after.clock - before.clock) * count
    resolution = math.sqrt(count) / os.sysconf("SC_CLK_TCK")
    stolen = after.stolen - before.stolen
    others = total - (after.idle - before.idle) - stolen - (after.ours - before.ours)
    return max(0.0, others - resolution) / total, max(0.0, stolen - resolution) / total


def _read(processes: Sequence[int]) -> _Reading:
    wanted = {f"cpu{number}" for number in _processors()}
    idle = stolen = 0
    for line in _STAT.read_text().splitlines():
        name, *ticks = line.split()
        if name in wanted:
            idle += int(ticks[3]) + int(ticks[4])  # idle, and waiting for a disk
            stolen += int(ticks[7])
    second = os.sysconf("SC_CLK_TCK")
    ours = time.process_time() + sum(map(_processor_time, processes))
    return _Reading(time.perf_counter(), idle / second, stolen / second, ours)


def _processors() -> set[int]:
    return os.sched_getaffinity(0)


def _processor_time(process: int) -> float:
    """Seconds that all threads of another process have run; 0 when it has ended."""
    try:
        return time.clock_gettime((~process << 3) | 2)  # its CLOCK_PROCESS_CPUTIME_ID: clock_getcpuclockid(3)
    except OSError:
        return 0.0
