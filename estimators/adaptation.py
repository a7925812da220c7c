"""Adaptation: when a cost model does not fit a network, and which measurements adapt it (`CostModel.adapted`).

A model of another machine is off by a level. So is any model where the network stays in the caches: models are learned
from candidates that find none of their weights there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from collage.cost.estimator import Workload
from estimators.cost_model.model import CostModel
from estimators.cost_model.names import model_name

#: How many workloads a model is adapted by, about; and by how many at least.
CALIBRATION, LEAST_CALIBRATION = 60, 30


def stays_in_caches(workload: Workload, device: Mapping[str, Any]) -> bool:
    """Whether the network that a workload is part of fits into the caches of a CPU, as records describe it."""
    return device.get("kind") == "cpu" and 0 < workload.working_set <= int(device.get("cache") or 0)


def calibration_set(model: CostModel, workloads: Sequence[Workload]) -> list[Workload]:
    """About `CALIBRATION` workloads that the model knows, of all sizes: structures, evenly spaced by their predicted
    latency, each on every backend that takes it, so that they are measured side by side.
    """
    known = [w for w in dict.fromkeys(workloads) if model_name(w) in model.backends_]
    structures: dict[str, list[Workload]] = {}
    smallest: dict[str, float] = {}
    for workload, seconds in zip(known, model.predict(known).tolist(), strict=True):
        structures.setdefault(workload.structure, []).append(workload)
        smallest[workload.structure] = min(seconds, smallest.get(workload.structure, math.inf))
    ordered = sorted(structures, key=lambda structure: (smallest[structure], structure))
    count = min(len(ordered), math.ceil(CALIBRATION * len(ordered) / max(1, len(known))))
    places = {round(i * (len(ordered) - 1) / max(1, count - 1)) for i in range(count)}
    return [workload for place in sorted(places) for workload in structures[ordered[place]]]
