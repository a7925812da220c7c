"""Confirmation: no placement ships on the strength of a sum (Invariant 3 of the architecture).

The searched plan, the baselines (every single-backend plan) and the untouched TVM build run end to end, interleaved.
The best one ships. What the measurement cannot tell apart is a tie. A tie goes to the plan of fewer partitions, unless
the searched plan looks faster by more than a tie; among equals it goes to the searched plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from collage.cost import Cost
from collage.errors import CollageError
from collage.measure.job import Parts
from collage.measure.plan_runner import Placement, PlanRunner, partition_seconds
from collage.measure.runner import Measurement
from collage.measure.statistics import TIE, paired_ratio

SEARCHED = "collage"
UNTOUCHED = "untouched TVM"

Ratio = tuple[float, float, float]


class Contestant(msgspec.Struct, frozen=True):
    """One plan's end-to-end latency.

    Attributes
    ----------
    name
        "collage", "<backend> alone", or "untouched TVM".
    latency
        Of one call; Invalid, with the reason, when it does not compile or gives wrong numbers.
    ratio
        Its latency over that of the plan that ships, from paired samples: (median, low, high). None when it was
        stopped early.
    partition_seconds
        Of each of its partitions inside the whole, in execution order, without host nodes; () when it was stopped
        early, or when the plan is TVM's own.
    launch_seconds
        What the host takes to issue each of them, on an accelerator; () elsewhere.
    """

    name: str
    latency: Cost
    ratio: Ratio | None = None
    partition_seconds: tuple[float, ...] = ()
    launch_seconds: tuple[float, ...] = ()


class Confirmation(msgspec.Struct, frozen=True, rename={"contestants": "rivals"}):  # its name in files
    """What was measured end to end, and which plan ships because of it."""

    shipped: str
    contestants: tuple[Contestant, ...]

    def of(self, name: str) -> Contestant:
        return next(c for c in self.contestants if c.name == name)


def confirm(plans: Mapping[str, Placement], runner: PlanRunner) -> Confirmation:
    """Measure all plans and choose.

    Parameters
    ----------
    plans
        Name -> what to compile; `SEARCHED` among them.

    Raises
    ------
    CollageError
        Not one plan runs and gives the right numbers.
    """
    return choose(runner.measure(plans, "confirming end to end"), plans)


def choose(measured: Mapping[str, Measurement], plans: Mapping[str, Placement] | None = None) -> Confirmation:
    """The plan that ships: the fastest, if it is faster with certainty and by more than a tie; else the searched one,
    or the one of fewest partitions that is no slower by more than a tie.

    Plans are compared by the ratios of runs that followed each other, in which whatever slowed both cancels.

    Parameters
    ----------
    measured
        Name -> measurement.
    plans
        Name -> placement; without them no numbers of partitions are known.
    """
    plans = plans or {}
    costs = {name: m.cost for name, m in measured.items()}
    valid = [name for name, cost in costs.items() if cost.is_finite]
    if not valid:
        reasons = "; ".join(f"{name}: {cost.reason}" for name, cost in costs.items())
        raise CollageError(f"no plan runs and gives the right numbers: {reasons}")
    incumbent = SEARCHED if SEARCHED in valid else min(valid, key=lambda name: costs[name].seconds)
    shipped, best = incumbent, 1.0
    for name in valid:
        ratio = _ratio(measured[name].samples, measured[incumbent].samples)
        if ratio is not None and ratio[2] < 1.0 and ratio[0] < min(best, 1.0 - TIE):
            shipped, best = name, ratio[0]
    if shipped == incumbent:
        shipped = _simpler(incumbent, valid, measured, plans)
    reference = measured[shipped].samples
    contestants = tuple(
        Contestant(
            name,
            cost,
            _ratio(measured[name].samples, reference),
            _seconds(measured[name].parts, plans.get(name)),
            _seconds(measured[name].launches, plans.get(name)),
        )
        for name, cost in costs.items()
    )
    return Confirmation(shipped, contestants)


def _simpler(
    incumbent: str, valid: Sequence[str], measured: Mapping[str, Measurement], plans: Mapping[str, Placement]
) -> str:
    """The plan of fewest partitions, then the fastest, of those that lose no more than a tie to the incumbent."""

    def partitions(name: str) -> float:
        placement = plans.get(name)
        return math.inf if placement is None else len(placement)

    best = (partitions(incumbent), -math.inf, incumbent)
    for name in valid:
        ratio = _ratio(measured[name].samples, measured[incumbent].samples)
        if name != incumbent and ratio is not None and ratio[0] <= 1.0 + TIE:
            best = min(best, (partitions(name), ratio[0], name))
    return best[2]


def _seconds(parts: Parts, placement: Placement) -> tuple[float, ...]:
    return partition_seconds(parts, placement) if placement is not None else ()


def _ratio(samples: Sequence[float], reference: Sequence[float]) -> Ratio | None:
    """Plans that converge early stop while others go on: the rounds that both took part in are the pairs."""
    count = min(len(samples), len(reference))
    return paired_ratio(samples[:count], reference[:count]) if count >= 6 else None
