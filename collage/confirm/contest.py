"""Confirmation: no placement ships on the strength of a sum (Invariant 3 of the architecture).

The searched plan, every single-backend plan and the untouched TVM build run end to end, interleaved. The best one
ships. What the measurement cannot tell apart is a tie, and goes to the plan of fewer partitions, unless the searched
one looks faster by more than a tie; among equals the searched one has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage.cost import Cost
from collage.errors import CollageError
from collage.measure.job import Parts
from collage.measure.plan_runner import Placement, PlanRunner, partition_seconds
from collage.measure.runner import Measurement
from collage.measure.statistics import TIE, Summary, paired_ratio

SEARCHED = "collage"
UNTOUCHED = "untouched TVM"


@dataclass(frozen=True)
class Rival:
    """One plan's end-to-end latency.

    Attributes
    ----------
    name: "collage", "<backend> alone", or "untouched TVM".
    latency: of one call; Invalid, with the reason, when it does not compile or gives wrong numbers.
    ratio: its latency over that of the plan that ships, from paired samples; (median, low, high), None when it was
        stopped early.
    partition_seconds: of each of its partitions inside the whole, in execution order, host nodes left out; () where it
        was stopped early, or the plan is TVM's own.
    launch_seconds: what the host takes to issue each of them, on an accelerator; () elsewhere.
    """

    name: str
    latency: Cost
    ratio: tuple[float, float, float] | None = None
    partition_seconds: tuple[float, ...] = ()
    launch_seconds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Confirmation:
    """What was seen end to end, and which plan ships because of it."""

    shipped: str
    rivals: tuple[Rival, ...]

    def of(self, name: str) -> Rival:
        return next(r for r in self.rivals if r.name == name)


def confirm(plans: Mapping[str, Placement], runner: PlanRunner) -> Confirmation:
    """Measure all plans and choose.

    Parameters
    ----------
    plans: name -> what to compile; `SEARCHED` among them.

    Raises
    ------
    CollageError: not one plan runs and gives the right numbers.
    """
    return choose(runner.measure(plans, "confirming end to end"), plans)


def choose(measured: Mapping[str, Measurement], plans: Mapping[str, Placement] | None = None) -> Confirmation:
    """The plan that ships: the fastest beyond doubt and by more than a tie; else the searched one, or the one of fewest
    partitions that is, as far as can be told, no slower by more than a tie.

    Plans are compared by the ratios of runs that followed each other, in which whatever slowed both cancels.

    Parameters
    ----------
    measured: name -> what was seen.
    plans: name -> placement; None knows of no partitions.
    """
    costs = {name: plan_cost(m) for name, m in measured.items()}
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
        shipped = _simpler(incumbent, valid, measured, plans or {})
    reference = measured[shipped].samples
    rivals = tuple(
        Rival(
            name,
            cost,
            _ratio(measured[name].samples, reference),
            _seconds(measured[name].parts, (plans or {}).get(name)),
            _seconds(measured[name].launches, (plans or {}).get(name)),
        )
        for name, cost in costs.items()
    )
    return Confirmation(shipped, rivals)


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


def plan_cost(measurement: Measurement) -> Cost:
    """Median and spread of a placement's latency; Invalid, with the reason, when it did not run."""
    if not measurement.valid:
        return Cost.invalid(measurement.reason)
    summary = Summary.of(measurement.samples)
    return Cost(summary.median, summary.spread, summary.count, measurement.reason)


def _seconds(parts: Parts, placement: Placement) -> tuple[float, ...]:
    return partition_seconds(parts, placement) if placement is not None else ()


def _ratio(samples: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float] | None:
    """Plans that converge early stop while others go on: the rounds that both took part in are the pairs."""
    count = min(len(samples), len(reference))
    return paired_ratio(samples[:count], reference[:count]) if count >= 6 else None
