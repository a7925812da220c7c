"""The cost model of one backend: the sum of rows, its correction, and how far both may be off.

Sum, correction and expected error are fitted one after the other. Each is fitted to what the one before it does on
networks that it has not seen, for that is what it will be asked about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from estimators.conformal import conformal_quantile, group_weights
from estimators.cost_model_trees import (
    CORRECTION_COLUMNS,
    ROW_COLUMNS,
    Correction,
    SumOfRows,
    correction_inputs,
    from_json,
    to_json,
)
from estimators.features import FeatureTable

_SUM = {"max_depth": 6, "eta": 0.1, "min_child_weight": 0.3, "colsample_bytree": 0.6, "lambda": 0.5}
_CORRECTION = {"max_depth": 3, "eta": 0.05, "min_child_weight": 10, "colsample_bytree": 0.5, "subsample": 0.7}
_ROUNDS = {"correction": 100, "error": 60}
_FOLDS = 5
#: Log error below which workloads are not told apart: the noise of measuring.
_NOISE = 0.02


@dataclass(frozen=True)
class Held:
    """Predictions for workloads whose networks the predicting models had not seen: log seconds, and half-widths."""

    log_seconds: np.ndarray
    half_widths: np.ndarray


@dataclass(frozen=True)
class BackendModel:
    """A fitted model.

    Attributes
    ----------
    rows: the sum of rows.
    correction: added to its logarithm.
    error: the logarithm of the expected size of the log error.
    quantile: so many expected errors hold the stated share of true latencies.
    seen: hashes of the training set's rows, sorted; what is made of other rows is less certain.
    shift: added to the logarithm: of a backend whose model was learned from all backends' records.
    """

    rows: SumOfRows
    correction: Correction
    error: Correction
    quantile: float
    seen: np.ndarray
    shift: float = 0.0

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds, and half-widths of their intervals."""
        inputs, log_sums = _inputs(self.rows, self.seen, table)
        center = log_sums + self.correction.predict(inputs[:, :-1]) + self.shift
        return center, self.quantile * np.exp(self.error.predict(inputs))

    def as_dict(self) -> dict[str, Any]:
        return {
            "rows": to_json(self.rows.booster),
            "correction": to_json(self.correction.booster),
            "error": to_json(self.error.booster),
            "quantile": self.quantile,
            "seen": [int(number) for number in self.seen],
            "shift": self.shift,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> BackendModel:
        """The inverse. Raises KeyError, TypeError or ValueError where the content is something else."""
        quantile, shift = float(content["quantile"]), float(content["shift"])
        if not (np.isfinite(quantile) and quantile >= 0 and np.isfinite(shift)):
            raise ValueError("its quantile and shift are finite")
        rows = from_json(content["rows"], ROW_COLUMNS)
        float(rows.attr("shift") or "none")
        return cls(
            rows=SumOfRows(rows),
            correction=Correction(from_json(content["correction"], CORRECTION_COLUMNS)),
            error=Correction(from_json(content["error"], CORRECTION_COLUMNS + 1)),
            quantile=quantile,
            seen=np.array(content["seen"], dtype=np.uint64),
            shift=shift,
        )


def fit_backend(
    table: FeatureTable,
    log_seconds: np.ndarray,
    weights: np.ndarray,
    groups: np.ndarray,
    rounds: int,
    coverage: float,
    settings: Mapping[str, Any],
) -> tuple[BackendModel, Held]:
    """Fit to workloads of one backend; also what the model says of each when its network is left out.

    Parameters
    ----------
    table, log_seconds, weights, groups: one entry per workload; see `TrainingSet`.
    rounds: of boosting, for the sum.
    coverage: share of latencies that the intervals shall hold.
    settings: XGBoost's: seed and threads.
    """
    how = {**_SUM, **settings}
    folds = _folds(groups)
    log_sums = np.zeros(len(log_seconds))
    inputs = np.zeros((len(log_seconds), CORRECTION_COLUMNS + 1), dtype=np.float32)
    for train, test in folds:
        known = table.take(train)
        rows = SumOfRows.fit(known, log_seconds[train], weights[train] / weights[train].mean(), rounds, how)
        inputs[test], log_sums[test] = _inputs(rows, row_hashes(known), table.take(test))
    # Every network has the same say up to the noise of its latencies: a large one must not drown the others.
    say = weights * np.sqrt(group_weights(groups) * len(groups))
    gap = log_seconds - log_sums
    correction, corrected = _crossed(inputs[:, :-1], gap, say, folds, _ROUNDS["correction"], settings)
    size = np.log(np.abs(gap - corrected) + _NOISE)
    error, expected = _crossed(inputs, size, say, folds, _ROUNDS["error"], settings)
    scores = np.abs(gap - corrected) / np.exp(expected)
    quantile = conformal_quantile(scores, groups, coverage)
    model = BackendModel(
        rows=SumOfRows.fit(table, log_seconds, weights / weights.mean(), rounds, how),
        correction=correction,
        error=error,
        quantile=quantile,
        seen=row_hashes(table),
    )
    return model, Held(log_sums + corrected, quantile * np.exp(expected))


def row_hashes(table: FeatureTable) -> np.ndarray:
    """One 64-bit number per distinct row, sorted; the same on every machine."""
    return np.unique(_hash_each(table))


def _hash_each(table: FeatureTable) -> np.ndarray:
    rows = np.ascontiguousarray(table.rows, dtype="<f4")
    numbers = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little") for row in rows]
    return np.array(numbers, dtype=np.uint64)


def _inputs(rows: SumOfRows, seen: np.ndarray, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of the correction and, in the last column, the share of time in rows never seen; the log sums."""
    seconds = rows.row_seconds(table)
    sums = table.counts @ seconds
    largest = table.counts.multiply(seconds).max(axis=1).toarray().ravel() / sums
    unseen = table.counts @ (seconds * ~np.isin(_hash_each(table), seen)) / sums
    log_sums = np.log(sums)
    return np.column_stack([correction_inputs(table, log_sums, largest), unseen]).astype(np.float32), log_sums


def _crossed(
    inputs: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray,
    folds: list[tuple[np.ndarray, np.ndarray]],
    rounds: int,
    settings: Mapping[str, Any],
) -> tuple[Correction, np.ndarray]:
    """A correction learned from everything, and what those that were learned without its network say of each."""
    how = {**_CORRECTION, **settings}
    held = np.zeros(len(target))
    for train, test in folds:
        held[test] = Correction.fit(inputs[train], target[train], weights[train], rounds, how).predict(inputs[test])
    return Correction.fit(inputs, target, weights, rounds, how), held


def _folds(groups: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds of whole networks; of single workloads where there is but one network."""
    if len(np.unique(groups)) < 2:
        groups = np.arange(len(groups)) % _FOLDS
    folds = GroupKFold(n_splits=min(_FOLDS, len(np.unique(groups))))
    return list(folds.split(groups, groups=groups))
