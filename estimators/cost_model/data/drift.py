"""Drift: by how much a machine was slower when records were taken, as far as the records show it.

On a shared machine the same work takes half as long again in another half hour, and twice as long on a bad day. In a
collection of designed blocks (`collage.collect.blocks.families`) all kinds of work are interleaved, so a common factor
of the records of some minutes is no property of their workloads. The drift is the median by which they exceed the
predictions of a model that has seen them all, trees and analytic part. (The analytic part alone is off by a fifth for
some kinds of work, which looks like drift in a collection of few kinds.) The drift is divided out of each backend's
latencies, with the share of it by which small workloads slow down more than large ones. Records of networks are left as
they are, because they come kind by kind. So are all records of a machine that was steady, because the estimate has an
error of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from estimators.cost_model.backend import LatencyModel
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.names import model_name
from estimators.cost_model.trees import parallel_map
from estimators.features.batch import FeatureTable

#: Records of one backend, one after another, that share a drift.
_WINDOW = 121
#: A smaller drift (of the logarithm) is left in: it is found on a steady machine too, because other work follows.
_STEADY = 0.25
#: With fewer records of networks the drift of the others cannot be measured.
_LEAST = 30
_ROUNDS = 4
#: Rounds of boosting of the model that latencies are compared with, and the sample weight of records with drift in it.
_BOOSTING = 60
_DRIFTING_WEIGHT = 0.3
#: Errors of the logarithm beyond which they count linearly, and sizes (of the logarithm, from the median) that are cut
#: off.
_CLIP, _FAR = 0.1, 3.0
_REWEIGHTINGS = 10


def drift_removed(data: TrainingSet, table: FeatureTable, settings: Mapping[str, Any]) -> TrainingSet:
    """A training set with the latencies of each backend corrected by its own drift.

    Parameters
    ----------
    data, table
        The records, and their features.
    settings
        XGBoost's: seed and threads.
    """
    names = np.array([model_name(record) for record in data.records])

    def corrected(rows: np.ndarray) -> np.ndarray:
        log_seconds, weights, designed = (each[rows] for each in (data.log_seconds, data.weights, data.designed))
        return without_drift(table.take(rows), log_seconds, weights, designed, settings)

    result = data.log_seconds.copy()
    parts = [np.flatnonzero(names == name) for name in np.unique(names)] if data.designed.any() else []
    for rows, log_seconds in zip(parts, parallel_map(corrected, parts), strict=True):
        result[rows] = log_seconds
    return replace(data, log_seconds=result)


def without_drift(
    table: FeatureTable,
    log_seconds: np.ndarray,
    weights: np.ndarray,
    designed: np.ndarray,
    settings: Mapping[str, Any],
) -> np.ndarray:
    """The log seconds of one backend's records, as the machine would have shown them when the others were taken.

    Parameters
    ----------
    table, log_seconds, weights
        One entry per record, oldest first.
    designed
        bool, which of them are of designed blocks.
    settings
        XGBoost's: seed and threads.
    """
    result = log_seconds.copy()
    others, drifting = np.flatnonzero(~designed), np.flatnonzero(designed)
    if len(others) < _LEAST or not len(drifting):
        return result
    sample_weights = np.where(designed, _DRIFTING_WEIGHT, 1.0) * weights
    for _ in range(_ROUNDS):
        model = LatencyModel.fit(table, result, sample_weights, _BOOSTING, settings)
        expected = model.predict(table.take(drifting))[0]
        size = np.clip(expected - np.median(expected), -_FAR, _FAR)
        excess = log_seconds[drifting] - expected
        slope = _slope(size, excess)
        drift = _running_median(excess - slope * size)
        if np.abs(np.quantile(drift, [0.05, 0.95])).max() < _STEADY:
            return log_seconds.copy()
        result[drifting] = expected + excess - slope * size - drift
    return result


def _slope(size: np.ndarray, excess: np.ndarray) -> float:
    """By least absolute deviations (iteratively reweighted least squares)."""
    inputs = np.column_stack([np.ones(len(size)), size])
    found = np.zeros(2)
    for _ in range(_REWEIGHTINGS):
        weights = 1.0 / np.maximum(np.abs(excess - inputs @ found), _CLIP)
        normal = (inputs * weights[:, None]).T @ inputs + 1e-9 * np.eye(2)
        found = np.linalg.solve(normal, (inputs * weights[:, None]).T @ excess)
    return float(found[1])


def _running_median(values: np.ndarray) -> np.ndarray:
    half = min(_WINDOW, len(values)) // 2
    padded = np.pad(values, half, mode="reflect") if half else values
    return np.array([np.median(padded[i : i + 2 * half + 1]) for i in range(len(values))])
