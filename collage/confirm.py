"""Confirmation: no placement ships on the strength of a sum (Invariant 3 of the architecture).

The searched plan, every single-backend plan and the untouched TVM build run end to end, interleaved. The best one
ships; within a tie the searched plan does, as the one with the reasons.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collage.backends.base import Backend
from collage.cost import Cost
from collage.errors import CollageError
from collage.measure.artifact import Artifact
from collage.measure.end_to_end import measure_plans, prepare_plan, prepare_untouched
from collage.measure.protocol import END_TO_END, Protocol
from collage.measure.runner import Measurement
from collage.measure.statistics import Summary, paired_ratio
from collage.progress import Reporter

SEARCHED = "collage"
UNTOUCHED = "untouched TVM"
#: A difference below this share is a tie, which the searched plan wins.
TIE = 0.02


@dataclass(frozen=True)
class Rival:
    """One plan's end-to-end latency.

    Attributes
    ----------
    name: "collage", "<backend> alone", or "untouched TVM".
    latency: of one call; Invalid, with the reason, when it does not compile or gives wrong numbers.
    ratio: its latency over that of the plan that ships, from paired samples; (median, low, high), None when it was
        stopped early.
    """

    name: str
    latency: Cost
    ratio: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Confirmation:
    """What was seen end to end, and which plan ships because of it."""

    shipped: str
    rivals: tuple[Rival, ...]

    def of(self, name: str) -> Rival:
        return next(r for r in self.rivals if r.name == name)


def confirm(
    partitioned: Mapping[str, Callable[[], Any]],
    module: Any,
    backends: Sequence[Backend],
    threads: int,
    inputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    reporter: Reporter,
    protocol: Protocol = END_TO_END,
) -> Confirmation:
    """Measure all plans and choose.

    Parameters
    ----------
    partitioned: plan name -> what makes its partitioned module; `SEARCHED` among them.
    module: the canonical module, for the untouched TVM build.

    Raises
    ------
    CollageError: not one plan runs and gives the right numbers.
    """
    measured: dict[str, Measurement] = {}
    reporter.stage("confirming end to end", len(partitioned) + 2)
    with tempfile.TemporaryDirectory(prefix="collage-") as name:
        folder = Path(name)
        artifacts: dict[str, Artifact] = {}
        for number, (plan, make) in enumerate(partitioned.items()):
            reporter.step(f"building {plan}")
            here = folder / str(number)
            _try_build(artifacts, measured, plan, partial(_prepare, make, backends, threads, here))
        reporter.step(f"building {UNTOUCHED}")
        untouched = partial(prepare_untouched, module, threads, folder / "untouched")
        _try_build(artifacts, measured, UNTOUCHED, untouched)
        reporter.step(f"timing {len(artifacts)} plans")
        measured.update(measure_plans(artifacts, inputs, expected, protocol, threads, folder))
    return choose(measured)


def choose(measured: Mapping[str, Measurement]) -> Confirmation:
    """The plan that ships: the searched one, unless another is faster by more than a tie.

    Plans are compared by the ratios of runs that followed each other, in which whatever slowed both cancels.
    """
    costs = {name: _cost(m) for name, m in measured.items()}
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
    reference = measured[shipped].samples
    rivals = tuple(Rival(name, cost, _ratio(measured[name].samples, reference)) for name, cost in costs.items())
    return Confirmation(shipped, rivals)


def _prepare(make: Callable[[], Any], backends: Sequence[Backend], threads: int, folder: Path) -> Artifact:
    return prepare_plan(make(), backends, threads, folder)


def _try_build(
    artifacts: dict[str, Artifact], failed: dict[str, Measurement], plan: str, make: Callable[[], Artifact]
) -> None:
    try:
        artifacts[plan] = make()
    except CollageError as error:
        failed[plan] = Measurement(reason=str(error))


def _cost(measurement: Measurement) -> Cost:
    if not measurement.valid:
        return Cost.invalid(measurement.reason)
    summary = Summary.of(measurement.samples)
    return Cost(summary.median, summary.spread, summary.count, measurement.reason)


def _ratio(samples: Sequence[float], reference: Sequence[float]) -> tuple[float, float, float] | None:
    """Plans that converge early stop while others go on: the rounds that both took part in are the pairs."""
    count = min(len(samples), len(reference))
    return paired_ratio(samples[:count], reference[:count]) if count >= 6 else None
