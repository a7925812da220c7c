"""Fitting a cost model: from a training set to a model per backend, and the ratios between backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from estimators.cost_model.backend import BackendModel, Held, fit_backend
from estimators.cost_model.data.drift import without_drift
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.pairwise_ratio import Contrast, fit_contrasts
from estimators.cost_model.parallel import parallel_map
from estimators.features.batch import FeatureTable

#: A backend with fewer records has its model learned from all backends' records, and only its level from its own.
LEAST_PER_BACKEND = 100


@dataclass(frozen=True)
class Fitted:
    """What was learned.

    Attributes
    ----------
    backends: backend -> its model.
    contrasts: how backends that take the same workloads differ.
    data: the training set, without the drift of the machine.
    held: what the backends' models say of each of its records when the record's network is left out.
    """

    backends: dict[str, BackendModel]
    contrasts: tuple[Contrast, ...]
    data: TrainingSet
    held: Held


def fit_all(
    data: TrainingSet, table: FeatureTable, rounds: int, coverage: float, settings: Mapping[str, Any]
) -> Fitted:
    """Learn from a training set.

    Parameters
    ----------
    data, table: the records, and their features.
    rounds: of boosting.
    coverage: share of latencies that intervals shall hold.
    settings: XGBoost's: seed and threads.
    """
    names = np.array([record.key.backend for record in data.records])
    data = replace(data, log_seconds=_without_drift(data, table, names, settings))
    held = Held(np.zeros(len(names)), np.zeros(len(names)))

    def learned(rows: np.ndarray) -> tuple[BackendModel, Held]:
        each = (data.log_seconds[rows], data.weights[rows], data.groups[rows], data.designed[rows])
        return fit_backend(table.take(rows), *each, rounds, coverage, settings)

    models: dict[str, BackendModel] = {}
    pooled: tuple[BackendModel, Held] | None = None
    for name in sorted({record.key.backend for record in data.records}):
        chosen = np.flatnonzero(names == name)
        if len(chosen) >= LEAST_PER_BACKEND:
            models[name], its = learned(chosen)
        else:
            if pooled is None:
                pooled = learned(np.arange(len(names)))
            shift = float(np.median(data.log_seconds[chosen] - pooled[1].log_seconds[chosen]))
            models[name] = replace(pooled[0], shift=shift)
            its = Held(pooled[1].log_seconds[chosen] + shift, pooled[1].half_widths[chosen])
        held.log_seconds[chosen], held.half_widths[chosen] = its.log_seconds, its.half_widths
    return Fitted(models, fit_contrasts(models, data, table, rounds, settings), data, held)


def _without_drift(
    data: TrainingSet, table: FeatureTable, names: np.ndarray, settings: Mapping[str, Any]
) -> np.ndarray:
    """The log seconds of all backends, each corrected by its own drift."""

    def corrected(rows: np.ndarray) -> np.ndarray:
        log_seconds, weights, designed = (each[rows] for each in (data.log_seconds, data.weights, data.designed))
        return without_drift(table.take(rows), log_seconds, weights, designed, settings)

    result = data.log_seconds.copy()
    parts = [np.flatnonzero(names == name) for name in np.unique(names)] if data.designed.any() else []
    for rows, log_seconds in zip(parts, parallel_map(corrected, parts), strict=True):
        result[rows] = log_seconds
    return result
