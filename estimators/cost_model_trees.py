"""The two learners of the cost model, both gradient-boosted trees on the logarithm of latency (XGBoost, Chen and
Guestrin 2016).

*Sum of rows.* The latency of a workload is the sum over its rows of exp(f(row)), and f is learned from sums alone:
trees are boosted on rows, with the gradient of the squared log error of whole workloads. With s the share of a row in
a workload's sum and r its log error, the gradient by f(row) is s r; s bounds the curvature from above, because shares
sum to one. So small workloads teach what large ones are made of, and a workload ten times larger than any that was
seen is predicted as a sum of ten times the rows, which trees on whole workloads cannot do.

*Correction.* What fusion across rows, caches and schedulers add or save is learned from the totals of the workloads.
Its targets are errors on networks that the sum was not fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.features import FeatureTable
from estimators.features_table import ROW_NAMES, TOTAL_NAMES

#: Larger log errors pull with no more than this: an outlier must not bend the sum.
_CLIP = 0.7
_TINY = 1e-12


class SumOfRows:
    """Seconds of a workload as the sum of what its rows take.

    Parameters
    ----------
    booster: XGBoost's, whose margin is log(seconds of a row / its roofline time).
    """

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    @classmethod
    def fit(
        cls, table: FeatureTable, log_seconds: np.ndarray, weights: np.ndarray, rounds: int, settings: Mapping[str, Any]
    ) -> SumOfRows:
        """Boost on the rows of `table`; `weights` are the workloads', with mean 1."""
        import xgboost

        counts, by_row = table.counts, table.counts.T.tocsr()
        base = np.log(table.floors)
        # One factor for all rows brings the first sums to the right scale.
        sums = counts @ table.floors
        shift = float(np.average(log_seconds - np.log(sums), weights=weights))
        data = xgboost.DMatrix(table.rows, base_margin=base + shift, label=base)
        data.set_float_info("base_margin", base + shift)

        def objective(margins: np.ndarray, _: Any) -> tuple[np.ndarray, np.ndarray]:
            seconds = np.exp(np.clip(margins, -25, 10))
            totals = counts @ seconds
            error = np.clip(np.log(totals) - log_seconds, -_CLIP, _CLIP)
            gradient = seconds * (by_row @ (weights * error / totals))
            curvature = seconds * (by_row @ (weights / totals))
            return gradient, curvature + _TINY

        booster = xgboost.train(dict(settings, base_score=0.0), data, num_boost_round=rounds, obj=objective)
        booster.set_attr(shift=repr(shift))
        return cls(booster)

    def row_seconds(self, table: FeatureTable) -> np.ndarray:
        """Seconds of each distinct row."""
        import xgboost

        shift = float(self.booster.attr("shift"))
        data = xgboost.DMatrix(table.rows, base_margin=np.log(table.floors) + shift)
        return np.asarray(np.exp(np.clip(self.booster.predict(data, output_margin=True).astype(np.float64), -25, 10)))

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds of each workload, and the share of the row that takes most."""
        seconds = self.row_seconds(table)
        sums = table.counts @ seconds
        largest = table.counts.multiply(seconds).max(axis=1).toarray().ravel()
        return np.log(sums), largest / sums


class Correction:
    """A number per workload, learned from its totals: the log error of the sum, or the size of such errors."""

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    @classmethod
    def fit(
        cls, inputs: np.ndarray, target: np.ndarray, weights: np.ndarray, rounds: int, settings: Mapping[str, Any]
    ) -> Correction:
        import xgboost

        data = xgboost.DMatrix(inputs, label=target, weight=weights)
        options = dict(settings, objective="reg:pseudohubererror", huber_slope=0.3, base_score=float(np.median(target)))
        return cls(xgboost.train(options, data, num_boost_round=rounds))

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        import xgboost

        return np.asarray(self.booster.predict(xgboost.DMatrix(inputs)), dtype=np.float64)


def correction_inputs(table: FeatureTable, log_sums: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Totals, the sum itself (log2 of microseconds) relative to the roofline too, and the largest row's share."""
    microseconds = (log_sums + np.log(1e6)) / np.log(2)
    roofline = table.totals[:, TOTAL_NAMES.index("total_roofline")]
    return np.column_stack([table.totals, microseconds, microseconds - roofline, largest]).astype(np.float32)


def to_json(booster: Any) -> Any:
    """A booster as the JSON object that XGBoost defines."""
    return json.loads(booster.save_raw(raw_format="json"))


def from_json(content: Any, columns: int) -> Any:
    """The inverse. Raises ValueError when it is not a booster over that many columns."""
    import xgboost

    try:
        booster = xgboost.Booster()
        booster.load_model(bytearray(json.dumps(content).encode()))
        found = booster.num_features()
    except xgboost.core.XGBoostError as error:
        raise ValueError(str(error).partition("\n")[0]) from error
    if found != columns:
        raise ValueError(f"trees over {found} features, not {columns}")
    return booster


ROW_COLUMNS = len(ROW_NAMES)
CORRECTION_COLUMNS = len(TOTAL_NAMES) + 3
