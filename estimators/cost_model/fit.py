"""Fitting a cost model: a model per backend, and the ratios between backends.

Intervals are as wide as errors on networks that a model has not seen, because it will be asked about such networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from estimators.cost_model.backend import BackendModel, LatencyModel, TrainingRange
from estimators.cost_model.conformal import conformal_quantile, group_weights
from estimators.cost_model.data.drift import drift_removed
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.names import model_name
from estimators.cost_model.pairwise_ratio import PairwiseRatio, fit_ratios
from estimators.cost_model.trees import COLUMNS, Trees, parallel_map
from estimators.features.batch import FeatureTable

#: A backend with fewer records has its model learned from all backends' records, and only its level from its own.
LEAST_PER_BACKEND = 100
_FOLDS = 10
#: Records of designed blocks, one after another, that are in one fold.
_RUN = 100
#: With fewer networks, errors on designed blocks count for the width of intervals too.
_LEAST_NETWORKS = 5
_ERROR_ROUNDS = 60
#: Beyond this, errors of the logarithm of the error's size count linearly.
_ERROR_SLOPE = 0.3
#: Log error below which workloads are not distinguished: the noise of measuring.
_NOISE = 0.02


@dataclass(frozen=True)
class HeldOut:
    """Predictions for workloads whose networks the predicting models had not seen: log seconds, and half-widths."""

    log_seconds: np.ndarray
    half_widths: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """What was learned.

    Attributes
    ----------
    backends
        Backend -> its model.
    ratios
        How backends that take the same workloads differ.
    data
        The training set, without the drift of the machine.
    held_out
        The predictions of the backends' models for each record when its network is left out.
    """

    backends: dict[str, BackendModel]
    ratios: tuple[PairwiseRatio, ...]
    data: TrainingSet
    held_out: HeldOut


def fit_all(
    data: TrainingSet, table: FeatureTable, rounds: int, coverage: float, settings: Mapping[str, Any]
) -> Fitted:
    """Learn from a training set.

    Parameters
    ----------
    data, table
        The records, and their features.
    rounds
        Of boosting.
    coverage
        Share of latencies that intervals shall hold.
    settings
        XGBoost's: seed and threads.
    """
    names = np.array([model_name(record) for record in data.records])
    data = drift_removed(data, table, settings)
    held_out = HeldOut(np.zeros(len(names)), np.zeros(len(names)))

    def learned(rows: np.ndarray) -> tuple[BackendModel, HeldOut]:
        each = (data.log_seconds[rows], data.weights[rows], data.groups[rows], data.designed[rows])
        return fit_backend(table.take(rows), *each, rounds, coverage, settings)

    models: dict[str, BackendModel] = {}
    pooled: tuple[BackendModel, HeldOut] | None = None
    for name in sorted({model_name(record) for record in data.records}):
        chosen = np.flatnonzero(names == name)
        if len(chosen) >= LEAST_PER_BACKEND:
            models[name], its = learned(chosen)
        else:
            if pooled is None:
                pooled = learned(np.arange(len(names)))
            shift = float(np.median(data.log_seconds[chosen] - pooled[1].log_seconds[chosen]))
            models[name] = msgspec.structs.replace(pooled[0], shift=shift)
            its = HeldOut(pooled[1].log_seconds[chosen] + shift, pooled[1].half_widths[chosen])
        held_out.log_seconds[chosen], held_out.half_widths[chosen] = its.log_seconds, its.half_widths
    return Fitted(models, fit_ratios(models, data, table, rounds, settings), data, held_out)


def fit_backend(
    table: FeatureTable,
    log_seconds: np.ndarray,
    weights: np.ndarray,
    groups: np.ndarray,
    designed: np.ndarray,
    rounds: int,
    coverage: float,
    settings: Mapping[str, Any],
) -> tuple[BackendModel, HeldOut]:
    """Fit to workloads of one backend; also the prediction for each when its network is left out.

    Parameters
    ----------
    table, log_seconds, weights, groups, designed
        One entry per workload; see `TrainingSet`.
    rounds
        Of boosting, for the correction.
    coverage
        Share of latencies that the intervals shall hold.
    settings
        XGBoost's: seed and threads.
    """

    def latency_model(rows: np.ndarray) -> LatencyModel:
        return LatencyModel.fit(table.take(rows), log_seconds[rows], weights[rows], rounds, settings)

    def error_model(rows: np.ndarray) -> Trees:
        return Trees.fit(inputs[rows], size[rows], error_weights[rows], _ERROR_ROUNDS, _ERROR_SLOPE, settings)

    folds = _folds(groups, designed)
    parts = [*(train for train, _ in folds), np.arange(len(groups))]
    *without, latency = parallel_map(latency_model, parts)
    predicted = np.zeros(len(log_seconds))
    inputs = np.zeros((len(log_seconds), COLUMNS + 1), dtype=np.float32)
    for (_, test), ignorant in zip(folds, without, strict=True):
        predicted[test], inputs[test] = ignorant.predict(table.take(test))
    # A large network must not drown the others' errors, nor a small one's few records outweigh them all.
    error_weights = weights * group_weights(groups) * len(groups)
    misses = np.abs(log_seconds - predicted)
    size = np.log(misses + _NOISE)
    *errors, error = parallel_map(error_model, parts)
    expected = np.zeros(len(size))
    for (_, test), known in zip(folds, errors, strict=True):
        expected[test] = known.predict(inputs[test])
    asked = asked_about(groups, designed)
    quantile = conformal_quantile((misses / np.exp(expected))[asked], groups[asked], coverage)
    model = BackendModel(
        analytic=latency.analytic,
        correction=latency.correction,
        error=error,
        quantile=quantile,
        training_range=TrainingRange.of(table.totals),
        shift=0.0,
    )
    return model, HeldOut(predicted, quantile * np.exp(expected))


def asked_about(groups: np.ndarray, designed: np.ndarray) -> np.ndarray:
    """bool (workloads,): whose errors count for the width of intervals. Networks are what a model will be asked about;
    they are measured more often than designed blocks, and so more exactly.
    """
    enough = len(np.unique(groups[~designed])) >= _LEAST_NETWORKS
    return ~designed if enough else np.ones(len(groups), dtype=bool)


def _folds(groups: np.ndarray, designed: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds of whole networks, over which designed blocks are spread; of single workloads where there is but one
    network, and nothing else.
    """
    from sklearn.model_selection import GroupKFold  # takes a second to import, and predicting has no need of it

    networks = np.flatnonzero(~designed)
    found = len(np.unique(groups[networks]))
    parts = np.arange(len(groups)) % _FOLDS
    if found > 1 or designed.any():
        count = min(_FOLDS, max(2, found))
        # A block's records were taken one after another, so that runs of records part few blocks; a fold has many runs,
        # from all times, because a collection may have been of one kind of block for a while.
        run = max(1, min(_RUN, int(designed.sum()) // (2 * count)))
        parts[designed] = np.arange(designed.sum()) // run % count
        parts[networks] = 0
        if found > 1:
            for number, (_, test) in enumerate(GroupKFold(n_splits=count).split(networks, groups=groups[networks])):
                parts[networks[test]] = number
    return [(np.flatnonzero(parts != part), np.flatnonzero(parts == part)) for part in np.unique(parts)]
