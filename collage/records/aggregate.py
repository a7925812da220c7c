"""One record from all observations of a key: what `get`, `costs` and training see.

Latencies of one session agree with each other better than with those of the next day. So each session has one vote,
its best converged observation, and the median of the sessions is the latency. Which observation is the newest decides
nothing but ties and the descriptive fields; "newest" is the order in which they were stored, never a clock.

1. Of a plan's end-to-end latency only the newest observation counts: it is comparable with its own contest only. So
   does that of an operator's error, which is no latency.
2. Observations that are ok count, and invalid ones only where there is no other: what ran once with the right numbers
   can run.
3. Of these the undisturbed ones count (`was_disturbed`), and disturbed ones only where there is no other.
4. Of each session the observation counts whose spread is the smallest share of its latency. One without a session
   (schema version 1) is a session of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple, Protocol

from collage.cost.disturbance import was_disturbed
from collage.records.key import RecordKey
from collage.records.record import Record

#: Half-width of the 95% interval of a median of n normal values: 1.96 standard errors, each sqrt(pi / 2) standard
#: deviations over sqrt(n); a standard deviation is 1.4826 median absolute deviations.
_HALF_WIDTH = 1.96 * math.sqrt(math.pi / 2) * 1.4826


class Observed(Protocol):
    """What the aggregate asks of an observation."""

    @property
    def status(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def spread(self) -> float: ...
    @property
    def samples(self) -> int: ...
    @property
    def session(self) -> str: ...
    @property
    def conditions(self) -> Mapping[str, float]: ...


class Aggregate(NamedTuple):
    """The numbers of a key.

    Attributes
    ----------
    counted
        Positions of the observations that count, oldest first.
    seconds
        The median of their latencies; None where they are invalid.
    spread
        Half-width of its 95% interval by the sessions' scatter, in seconds, or the median of the sessions' own spreads
        where that is larger. Of a single session its own.
    samples
        Of all that count.
    """

    counted: tuple[int, ...]
    seconds: float | None
    spread: float
    samples: int


def aggregate(kind: str, observations: Sequence[Observed]) -> Aggregate:
    """The numbers of a key of this kind from its observations, one at least, in the order in which they were stored."""
    positions = _counted(kind, observations)
    chosen = [observations[i] for i in positions]
    values = [o.seconds for o in chosen if o.seconds is not None]
    if len(chosen) == 1 or not values:
        last = chosen[-1]
        return Aggregate(tuple(positions), last.seconds, last.spread, last.samples)
    middle = median(values)
    scatter = _HALF_WIDTH * median(abs(value - middle) for value in values) / math.sqrt(len(values))
    spread = max(scatter, median(o.spread for o in chosen))
    return Aggregate(tuple(positions), middle, spread, sum(o.samples for o in chosen))


def merged(observations: Sequence[Record]) -> Record:
    """The record of a key from its observations, as `aggregate` takes them.

    The timings are those of all that count, oldest first; all other fields are those of the newest that counts.
    """
    found = aggregate(observations[0].key.kind, observations)
    newest = observations[found.counted[-1]]
    if len(found.counted) == 1:
        return newest
    timings = tuple(timing for i in found.counted for timing in observations[i].timings)
    return replace(newest, seconds=found.seconds, spread=found.spread, samples=found.samples, timings=timings)


def by_key(observations: Iterable[Record]) -> Iterator[Record]:
    """One record for each key, in the order in which the keys first occur; an observation that occurs twice is one."""
    of_key: dict[RecordKey, list[Record]] = {}
    for observation in observations:
        known = of_key.setdefault(observation.key, [])
        if observation not in known:
            known.append(observation)
    return map(merged, of_key.values())


def _counted(kind: str, observations: Sequence[Observed]) -> list[int]:
    newest = len(observations) - 1
    ok = [i for i, o in enumerate(observations) if o.status == "ok"]
    if kind in ("plan", "sensitivity", "calibration") or not ok:
        return [newest]
    quiet = [i for i in ok if not was_disturbed(observations[i].conditions)]
    best: dict[str | int, int] = {}
    for i in quiet or ok:
        session = observations[i].session or i
        if session not in best or _uncertainty(observations[i]) <= _uncertainty(observations[best[session]]):
            best[session] = i
    return sorted(best.values())


def _uncertainty(observation: Observed) -> float:
    return observation.spread / observation.seconds if observation.seconds else observation.spread
