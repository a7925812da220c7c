"""Starters: which plans are tried, by their costs, and which race, by their trials."""

from __future__ import annotations

from collections.abc import Mapping

from collage.confirm.finals import plan_of
from collage.measure.statistics import TIE

#: Whose costs add up to so many times the least is not tried: sums err by less. Those of short placements (at most so
#: many seconds) err by more, 2.4 times of a plan that was faster by a tenth, and their trials are short, too.
_HOPELESS, _HOPELESS_SHORT, SHORT_S = 1.25, 4.0, 10e-3
#: Who is so many times slower than the fastest in the trials does not race.
_LOST = 1.15


def is_hopeless(seconds: float, least: float) -> bool:
    """Whether a baseline's costs add up to far more than those of the searched placement, the least; in seconds."""
    return seconds > least * (_HOPELESS_SHORT if least <= SHORT_S else _HOPELESS)


def starters(seconds: Mapping[str, float], engines: Mapping[str, str]) -> list[str]:
    """Those who did not lose in the trials, the fastest first.

    Of an engine's two plans of the whole network, the file's races alone where it is not the slower one by more than a
    tie: rounds that tell equal plans apart are the most that there can be.

    Parameters
    ----------
    seconds
        Name -> latency in the trials, of each placement that ran once.
    engines
        Name -> engine, of the plans that are one partition.
    """
    near = [name for name in seconds if seconds[name] <= _LOST * min(seconds.values())]
    files = {engine: plan_of(engine, near) for engine in engines.values()}

    def races(name: str) -> bool:
        file = files.get(engines.get(name, ""), name)
        return file == name or file not in near or seconds[file] > (1.0 + TIE) * seconds[name]

    return sorted(filter(races, near), key=seconds.__getitem__)
