"""Drift: what a machine was slower by when records were taken, as far as they can tell.

On a shared machine the same work takes half as long again in another half hour, and twice as long on a bad day. In a
collection of designed blocks (`collage.collect.blocks.families`) all kinds of work take turns, so what the records of
some minutes have in common is no property of their workloads: it is the median by which they exceed what a model says
that has seen them all, trees and analytic part (the analytic part alone is off by a fifth for some kinds of work, which
looks like drift where a collection is of few kinds). It is taken out of each backend's latencies, with the share of it
that small workloads suffer more than large ones. Records of networks are left as they are: they come kind by kind. So
are all of a machine that was steady, because the estimate has an error of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.cost_model.backend import Point
from estimators.features.batch import FeatureTable

#: Records of one backend, one after another, that share a drift.
_WINDOW = 121
#: Drift (of the logarithm) that is seen on a steady machine, too, because other work follows: a smaller one is left in.
_STEADY = 0.25
#: Fewer records of networks are no measure for the drift of the others.
_LEAST = 30
_ROUNDS = 4
#: Rounds of boosting of the model that latencies are compared with, and what records with drift count in it.
_BOOSTING = 60
_SAY = 0.3
#: Log errors beyond this pull as hard as those at it; sizes beyond e^3 times the median say no more than those at it.
_CLIP, _FAR = 0.1, 3.0
_REWEIGHTINGS = 10


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
    table, log_seconds, weights: one entry per record, oldest first.
    designed: bool, which of them are of designed blocks.
    settings: XGBoost's: seed and threads.
    """
    result = log_seconds.copy()
    others, drifting = np.flatnonzero(~designed), np.flatnonzero(designed)
    if len(others) < _LEAST or not len(drifting):
        return result
    say = np.where(designed, _SAY, 1.0) * weights
    for _ in range(_ROUNDS):
        model = Point.fit(table, result, say, _BOOSTING, settings)
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
        pull = 1.0 / np.maximum(np.abs(excess - inputs @ found), _CLIP)
        normal = (inputs * pull[:, None]).T @ inputs + 1e-9 * np.eye(2)
        found = np.linalg.solve(normal, (inputs * pull[:, None]).T @ excess)
    return float(found[1])


def _running_median(values: np.ndarray) -> np.ndarray:
    half = min(_WINDOW, len(values)) // 2
    padded = np.pad(values, half, mode="reflect") if half else values
    return np.array([np.median(padded[i : i + 2 * half + 1]) for i in range(len(values))])
