"""Confirmation: the result of a contest: its contestants, their latencies, and the plan that ships.

A sum of costs alone does not make a placement ship (Invariant 3 of the architecture). The searched plans, the baselines
(every single-backend plan), the untouched TVM build and the rivals run end to end, each in a process of its own, and
take turns. The plan of fewest partitions ships, unless another one is faster beyond doubt and by more than `TIE`. Of
plans that are equal by this rule, one ships whose 95th percentile is lower beyond doubt, if there is one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from collage.cost.cost import Cost
from collage.deployed.race import Race
from collage.deployed.timeline import TimedCall
from collage.measure.sequential import quantile_ratio, ratio
from collage.measure.statistics import TIE, Summary

SEARCHED = "collage"
UNTOUCHED = "untouched TVM"
#: Why a contestant has no latency.
NOT_RUN = "not run"
#: Calls of each from which 95th percentiles are compared: of fewer they are the slowest call, which chance decides.
_FOR_A_TAIL = 20

Ratio = tuple[float, float, float]


class Contestant(msgspec.Struct, frozen=True):
    """One plan's, or one rival's, end-to-end latency.

    Attributes
    ----------
    name
        "collage", "<backend> alone", "untouched TVM", or "<engine> by itself".
    latency
        Of one call; Invalid, with the reason, when it does not compile or gives wrong numbers; Unknown when it was not
        run, or the machine failed it.
    ratio
        Its latency over that of the plan that ships, from rounds that both took part in: (median, low, high). None
        where there are too few.
    partition_seconds
        Of each of its partitions inside the whole, in execution order, without host nodes; () when that was not
        watched, or when the plan is TVM's own.
    launch_seconds
        What the host takes to issue each of them, on an accelerator; () elsewhere.
    timeline
        When each of them, and what else is called, begins and ends in a call, of the plan that ships; () where that was
        not watched.
    percentile
        Seconds: the 95th percentile of its calls; None where it was not run often.
    quiet
        Seconds: median and 95th percentile of its calls in rounds in which nobody else used the machine.
    rival
        Whether it is an engine by its own API, which cannot ship.
    fresh
        Whether the numbers are of the final, whose samples nothing was chosen by.
    """

    name: str
    latency: Cost
    ratio: Ratio | None = None
    partition_seconds: tuple[float, ...] = ()
    launch_seconds: tuple[float, ...] = ()
    timeline: tuple[TimedCall, ...] = ()
    percentile: float | None = None
    quiet: tuple[float, float] | None = None
    rival: bool = False
    fresh: bool = False


class Confirmation(msgspec.Struct, frozen=True, rename={"contestants": "rivals"}):
    """What was measured end to end, and which plan ships because of it; `rivals` is its contestants' name in files.

    Attributes
    ----------
    shipped
        Name of the plan that ships.
    contestants
        Everybody who took part.
    disturbed
        Share of the final's rounds on a disturbed machine (`collage.measure.conditions`).
    """

    shipped: str
    contestants: tuple[Contestant, ...]
    disturbed: float = 0.0

    def of(self, name: str) -> Contestant:
        return next(c for c in self.contestants if c.name == name)

    def with_answer(self, names: Sequence[str]) -> tuple[Confirmation, int]:
        """The same with the searched plan called `SEARCHED` that ships, and its place among `names`; where none of
        them ships, as it is, with the place of the one that is called so.
        """
        if self.shipped not in names:
            return self, names.index(SEARCHED)
        exchanged = {self.shipped: SEARCHED, SEARCHED: self.shipped}
        contestants = tuple(replace(c, name=exchanged.get(c.name, c.name)) for c in self.contestants)
        return replace(self, shipped=SEARCHED, contestants=contestants), names.index(self.shipped)

    @property
    def faster_rival(self) -> Contestant | None:
        """The fastest of those rivals that are faster than what ships beyond doubt; None when none is."""
        rivals = [c for c in self.contestants if c.rival and c.ratio is not None and c.ratio[2] < 1.0]
        return min(rivals, key=lambda c: c.ratio or (), default=None)


def choose(race: Race, partitions: Mapping[str, float]) -> str:
    """Which plan ships, by a race: the one of fewest partitions, unless another one is faster beyond doubt.

    A lead within the doubt is often gone an hour later, and partitions cost what no race shows: memory, time to load,
    and latency on a busy machine. Of plans that do not seem slower than this one, by more than a tie, one that is
    steadier beyond doubt is chosen instead.

    Parameters
    ----------
    race
        Those who were in all of its rounds can win.
    partitions
        Name of each plan that may ship -> its number of partitions, infinite for TVM's own build.
    """
    latencies = {name: race.latencies(name) for name in those_who_finished(race, partitions)}
    equal = unbeaten(latencies, partitions)
    simplest = equal[0]
    if len(latencies[simplest]) < 2:
        return simplest
    called = [name for name in equal if sum(map(len, race.samples[name])) >= _FOR_A_TAIL]
    others = called[1:] if called[:1] == [simplest] else []
    near = [name for name in others if ratio(latencies[name], latencies[simplest]).median <= 1.0 + TIE]
    tails = {name: quantile_ratio(race.samples[name], race.samples[simplest]) for name in near}
    steadier = [name for name, tail in tails.items() if tail.high < 1.0 and tail.median < 1.0 - TIE]
    return min(steadier, key=lambda name: tails[name].median, default=simplest)


def unbeaten(latencies: Mapping[str, Sequence[float]], partitions: Mapping[str, float]) -> list[str]:
    """Those whom the leader does not beat beyond doubt by more than a tie; the simplest first.

    Parameters
    ----------
    latencies
        Name -> latencies of the same rounds, in seconds.
    partitions
        As of `choose`.
    """
    leader = min(latencies, key=lambda name: statistics.median(latencies[name]))
    behind = {name: ratio(latencies[name], latencies[leader]) for name in latencies}
    equal = [name for name in latencies if behind[name].median <= 1.0 + TIE or behind[name].low <= 1.0]
    return sorted(equal, key=lambda name: (partitions[name], behind[name].median, name))


def those_who_finished(race: Race, names: Iterable[str]) -> list[str]:
    """Those of the names who were in all rounds that any of them was in."""
    took_part = [name for name in names if name in race.samples]
    length = max(len(race.samples[name]) for name in took_part)
    return [name for name in took_part if len(race.samples[name]) == length]


def contestant(name: str, race: Race, reference: str, *, rival: bool = False, fresh: bool = False) -> Contestant:
    """What a race says of one who took part, relative to a reference."""
    turns = race.samples[name]
    calls = sorted(seconds for turn in turns for seconds in turn)
    summary = Summary.of(race.latencies(name))
    quiet = sorted(seconds for turn in race.quiet(name) for seconds in turn)
    common = min(len(turns), len(race.samples[reference]))
    found = ratio(race.latencies(name)[:common], race.latencies(reference)[:common]) if common > 1 else None
    return Contestant(
        name,
        Cost(summary.median, summary.spread, len(calls)),
        (found.median, found.low, found.high) if found is not None and math.isfinite(found.high) else None,
        percentile=_percentile(calls),
        quiet=(statistics.median(quiet), _percentile(quiet)) if quiet else None,
        rival=rival,
        fresh=fresh,
    )


def _percentile(ordered: list[float]) -> float:
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
