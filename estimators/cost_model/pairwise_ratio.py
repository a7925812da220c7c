"""Contrasts: how much two backends differ, learned from what both were measured on.

Rivals for a workload are measured beside each other. What a bad minute added, and what no feature tells of the
workload, is in both latencies and not in their ratio (paired comparison, Student 1908), so that a model of the ratio
names the faster one more often than two models of latencies do. Backends that take the same workloads are each moved
towards what the ratio between them asks for; their intervals stay as wide as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from estimators.cost_model.backend import SLOPE, BackendModel
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.parallel import parallel_map
from estimators.cost_model.trees import COLUMNS, Trees, tree_inputs
from estimators.features.batch import FeatureTable

#: Share of the workloads of each of two backends that both must have been measured on. A backend that takes others, too
#: (several outputs, no anchor) has no ratio for those, and one learned without them misleads.
_SHARED = 0.9
#: Fewer common workloads are too few for a model: as few as a backend has whose model is learned from all of them.
_LEAST = 100
#: How far differences of predictions move towards the ratio's.
_PULL = 0.9


@dataclass(frozen=True)
class Contrast:
    """The ratio of two backends' latencies.

    Attributes
    ----------
    first, second: the backends.
    trees: log(first / second), less what the analytic parts of their models say of it.
    """

    first: str
    second: str
    trees: Trees

    def predict(self, models: Mapping[str, BackendModel], table: FeatureTable) -> np.ndarray:
        """log(first / second) of each workload."""
        inputs, told = _inputs(models[self.first], models[self.second], table)
        return np.asarray(told + self.trees.predict(inputs))

    def as_dict(self) -> dict[str, Any]:
        return {"first": self.first, "second": self.second, "trees": self.trees.as_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], threads: int) -> Contrast:
        """The inverse. Raises KeyError, TypeError or ValueError where the content is something else."""
        return cls(content["first"], content["second"], Trees.from_dict(content["trees"], COLUMNS + 1, threads))


def fit_contrasts(
    models: Mapping[str, BackendModel],
    data: TrainingSet,
    table: FeatureTable,
    rounds: int,
    settings: Mapping[str, Any],
) -> tuple[Contrast, ...]:
    """A contrast for each two of the models' backends that take the same workloads.

    Parameters
    ----------
    models: of all backends.
    data, table: what these learned from.
    rounds: of boosting.
    settings: XGBoost's: seed and threads.
    """
    rows: dict[str, dict[tuple[str, int], int]] = {name: {} for name in models}
    for row, record in enumerate(data.records):
        rows[record.key.backend][record.key.structure, record.key.threads] = row

    def contrast(pair: tuple[str, str]) -> Contrast | None:
        first, second = pair
        both = [workload for workload in rows[first] if workload in rows[second]]
        if len(both) < max(_LEAST, _SHARED * max(len(rows[first]), len(rows[second]))):
            return None
        a, b = (np.array([rows[name][workload] for workload in both]) for name in (first, second))
        inputs, told = _inputs(models[first], models[second], table.take(a))
        target = data.log_seconds[a] - data.log_seconds[b] - told
        weights = 1.0 / (1.0 / data.weights[a] + 1.0 / data.weights[b])
        trees = Trees.fit(inputs, target, weights / weights.mean(), rounds, SLOPE, settings)
        return Contrast(first, second, trees)

    found = parallel_map(contrast, combinations(sorted(models), 2))
    return tuple(each for each in found if each is not None)


def moved(
    contrasts: Sequence[Contrast],
    models: Mapping[str, BackendModel],
    name: str,
    table: FeatureTable,
    log_seconds: np.ndarray,
) -> np.ndarray:
    """The log seconds that a backend's model says, moved towards what its contrasts ask for: to the mean of its own
    and, for each rival, the rival's plus the difference.
    """
    own = [contrast for contrast in contrasts if name in (contrast.first, contrast.second)]
    result = log_seconds.copy()
    for contrast in own:
        rival, sign = (contrast.second, 1.0) if name == contrast.first else (contrast.first, -1.0)
        asked = models[rival].point.predict(table)[0] + sign * contrast.predict(models, table)
        result += _PULL / (len(own) + 1) * (asked - log_seconds)
    return result


def _inputs(first: BackendModel, second: BackendModel, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
    """What trees see: the first's inputs, and what the analytic parts say of log(first / second), which is also
    given.
    """
    inputs, sums, _ = tree_inputs(first.point.analytic, table)
    told = sums - second.point.analytic.predict(table.work)[0]
    return np.column_stack([inputs, told]).astype(np.float32), told
