"""Starters: which plans are tried, by their costs, and which race, by their trials."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from collage.backends.base import Backend
from collage.confirm.confirmation import NOT_RUN, UNTOUCHED, Contestant
from collage.confirm.finals import plan_of
from collage.cost.cost import Cost
from collage.deployed.rivals import Rival
from collage.measure.statistics import TIE
from collage.search import Partitioning, SearchProblem

#: Whose costs add up to so many times the least is not tried: sums err by less. Those of short placements (at most so
#: many seconds) err by more, 2.4 times of a plan that was faster by a tenth, and their trials are short, too.
_HOPELESS, _HOPELESS_SHORT, SHORT_S = 1.25, 4.0, 10e-3
#: Who is so many times slower than the fastest in the trials does not race.
_LOST = 1.15


def is_hopeless(seconds: float, least: float) -> bool:
    """Whether a baseline's costs add up to far more than those of the searched placement, the least; in seconds."""
    return seconds > least * (_HOPELESS_SHORT if least <= SHORT_S else _HOPELESS)


def hopeless(
    problem: SearchProblem,
    found: Partitioning,
    baselines: Mapping[str, Partitioning],
    backends: Iterable[Backend],
    rivals: Iterable[Rival] = (),
    files: Collection[str] = (),
) -> dict[str, Contestant]:
    """The baselines that are not tried: those whose costs add up to far more than those of the searched placement.

    Sums of costs need not be right about engines that are rivals, too: such an engine runs all the same, on the file,
    if that plan is among `files`, or else as the baseline. TVM's own build has the same compiler, without schedules: it
    is left out with the plan on TVM's scheduled kernels, and where TVM is not among the backends.
    """
    kept = {plan_of(rival.engine, files) for rival in rivals}
    out, least = {}, found.cost.seconds
    for name, baseline in baselines.items():
        seconds = problem.partitioning(baseline.candidates).cost.seconds
        if is_hopeless(seconds, least) and name not in kept:
            why = f"{NOT_RUN}: its costs add up to {seconds / least:.2g} times those of the searched placement"
            out[name] = Contestant(name, Cost.unknown(why))
    scheduled = [f"{backend.name} alone" for backend in backends if backend.style == "native"]
    if not scheduled or not out.keys().isdisjoint(scheduled):
        why = "scheduled kernels of TVM were left out" if scheduled else "TVM is not among the backends"
        out[UNTOUCHED] = Contestant(UNTOUCHED, Cost.unknown(f"{NOT_RUN}: {why}"))
    return out


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
