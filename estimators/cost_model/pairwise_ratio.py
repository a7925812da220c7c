"""Pairwise ratios: how much two backends differ, learned from workloads that both were measured on.

The alternatives for a workload are measured interleaved. The effects of a disturbed minute, and those that no feature
shows, are in both latencies and not in their ratio (paired comparison, Student 1908). So a model of the ratio names the
faster backend more often than two models of latencies do. Predictions for backends that take the same workloads are
moved towards the predicted ratio; their intervals stay as wide as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from estimators.cost_model.backend import SLOPE, BackendModel
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.names import is_variant, model_name
from estimators.cost_model.trees import COLUMNS, Trees, parallel_map, tree_inputs
from estimators.features.batch import FeatureTable

#: Share of the workloads of each of two backends that both must have been measured on. A backend that takes others, too
#: (several outputs, no anchor) has no ratio for those, and one learned without them misleads.
_SHARED = 0.9
#: Fewer common workloads are too few for a model: as few as a backend has whose model is learned from all of them.
_LEAST = 100
#: How far differences of predictions move towards the ratio's.
_STEP = 0.9


class PairwiseRatio(msgspec.Struct, frozen=True, eq=False):
    """The ratio of two backends' latencies; its fields are those of the model file.

    Attributes
    ----------
    first, second
        The backends.
    trees
        log(first / second), less what the analytic parts of their models predict for it.
    """

    first: str
    second: str
    trees: Trees

    def __post_init__(self) -> None:
        self.trees.require_columns(COLUMNS + 1)

    def predict(self, models: Mapping[str, BackendModel], table: FeatureTable) -> np.ndarray:
        """log(first / second) of each workload."""
        inputs, analytic = _inputs(models[self.first], models[self.second], table)
        return np.asarray(analytic + self.trees.predict(inputs))


def fit_ratios(
    models: Mapping[str, BackendModel],
    data: TrainingSet,
    table: FeatureTable,
    rounds: int,
    settings: Mapping[str, Any],
) -> tuple[PairwiseRatio, ...]:
    """A ratio for each two of the models' backends that take the same workloads.

    Parameters
    ----------
    models
        Of all backends.
    data, table
        What these learned from.
    rounds
        Of boosting.
    settings
        XGBoost's: seed and threads.
    """
    rows: dict[str, dict[tuple[str, int], int]] = {name: {} for name in models}
    for row, record in enumerate(data.records):
        rows[model_name(record)][record.key.structure, record.key.threads] = row

    def fitted(pair: tuple[str, str]) -> PairwiseRatio | None:
        first, second = pair
        both = [workload for workload in rows[first] if workload in rows[second]]
        if len(both) < max(_LEAST, _SHARED * max(len(rows[first]), len(rows[second]))):
            return None
        a, b = (np.array([rows[name][workload] for workload in both]) for name in (first, second))
        inputs, analytic = _inputs(models[first], models[second], table.take(a))
        target = data.log_seconds[a] - data.log_seconds[b] - analytic
        weights = 1.0 / (1.0 / data.weights[a] + 1.0 / data.weights[b])
        trees = Trees.fit(inputs, target, weights / weights.mean(), rounds, SLOPE, settings)
        return PairwiseRatio(first, second, trees)

    # Of one structure there are many choices of labels: they are no pairs.
    names = sorted(name for name in models if not is_variant(name))
    found = parallel_map(fitted, combinations(names, 2))
    return tuple(each for each in found if each is not None)


def moved(
    ratios: Sequence[PairwiseRatio],
    models: Mapping[str, BackendModel],
    name: str,
    table: FeatureTable,
    log_seconds: np.ndarray,
) -> np.ndarray:
    """The log seconds predicted by a backend's model, moved towards those that its ratios predict: to the mean of its
    own and, for each other backend, that backend's plus the difference.
    """
    own = [ratio for ratio in ratios if name in (ratio.first, ratio.second)]
    result = log_seconds.copy()
    for ratio in own:
        other, sign = (ratio.second, 1.0) if name == ratio.first else (ratio.first, -1.0)
        predicted = models[other].latency.predict(table)[0] + sign * ratio.predict(models, table)
        result += _STEP / (len(own) + 1) * (predicted - log_seconds)
    return result


def _inputs(first: BackendModel, second: BackendModel, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of the trees: the first's, and log(first / second) by the analytic parts, which is also returned."""
    inputs, sums, _ = tree_inputs(first.analytic, table)
    analytic = sums - second.analytic.predict(table.work)[0]
    return np.column_stack([inputs, analytic]).astype(np.float32), analytic
