"""Starters: which plans race, by their trials."""

from __future__ import annotations

from collections.abc import Mapping

from collage.confirm.finals import plan_of
from collage.measure.statistics import TIE

#: Who is so many times slower than the fastest in the trials does not race.
_LOST = 1.15


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
