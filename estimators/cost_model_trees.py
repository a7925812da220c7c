"""The learned part of the cost model: gradient-boosted trees (XGBoost, Chen and Guestrin 2016) on whole workloads.

Two numbers are learned so: how far the analytic part is off, and how far both together are. The trees are shallow and
their loss grows linearly with the error: networks differ more from each other than the workloads of one network do, so
what fits the training set closely does not carry over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from estimators.cost_model_analytic import Analytic
from estimators.features import FeatureTable
from estimators.features_table import KINDS, TOTAL_NAMES

_SETTINGS = {
    "objective": "reg:pseudohubererror",
    "max_depth": 3,
    "eta": 0.05,
    "min_child_weight": 5,
    "colsample_bytree": 0.4,
    "subsample": 0.7,
    "tree_method": "hist",
    "verbosity": 0,
}
#: Columns of `tree_inputs`.
COLUMNS = 1 + len(TOTAL_NAMES) + len(KINDS)


class Trees:
    """A number per workload.

    Parameters
    ----------
    booster: XGBoost's.
    """

    def __init__(self, booster: Any) -> None:
        self.booster = booster

    @classmethod
    def fit(
        cls,
        inputs: np.ndarray,
        target: np.ndarray,
        weights: np.ndarray,
        rounds: int,
        slope: float,
        settings: Mapping[str, Any],
    ) -> Trees:
        """Boost; errors beyond `slope` count linearly. `settings` are XGBoost's seed and threads."""
        import xgboost

        data = xgboost.DMatrix(inputs, label=target, weight=weights)
        options = {**_SETTINGS, "huber_slope": slope, "base_score": float(np.median(target)), **settings}
        return cls(xgboost.train(options, data, num_boost_round=rounds))

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        return np.asarray(self.booster.inplace_predict(inputs), dtype=np.float64)

    def as_dict(self) -> Any:
        """The JSON object that XGBoost defines."""
        return json.loads(self.booster.save_raw(raw_format="json"))

    @classmethod
    def from_dict(cls, content: Any, columns: int, threads: int) -> Trees:
        """The inverse. Raises ValueError when it is not a booster over that many columns."""
        import xgboost

        try:
            booster = xgboost.Booster({"nthread": threads})
            booster.load_model(bytearray(json.dumps(content).encode()))
            found = booster.num_features()
        except xgboost.core.XGBoostError as error:
            raise ValueError(str(error).partition("\n")[0]) from error
        if found != columns:
            raise ValueError(f"trees over {found} features, not {columns}")
        return cls(booster)


def tree_inputs(analytic: Analytic, table: FeatureTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of trees: what the analytic part says (log2 of microseconds), the totals, the share of each kind of work.

    Also the analytic part's log seconds, and the share of work it never saw.
    """
    log_seconds, shares, unseen = analytic.predict(table.work)
    microseconds = (log_seconds + np.log(1e6)) / np.log(2)
    return np.column_stack([microseconds, table.totals, shares]).astype(np.float32), log_seconds, unseen
