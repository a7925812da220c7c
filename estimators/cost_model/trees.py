"""The learned part of the cost model: gradient-boosted trees (XGBoost, Chen and Guestrin 2016) on whole workloads.

Trees learn two numbers: the error of the analytic part, and the size of the error of both together. Of the kernels of a
workload they see the mean details, weighted by the predicted cost of each kernel, and a second mean in which the
costliest weigh more still. Their loss grows linearly with the error, and each tree sees a share of rows and columns.
Networks differ more from each other than the workloads of one network do, so a close fit to the training set would not
carry over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
from joblib import Parallel, delayed

from estimators.cost_model.analytic import Analytic
from estimators.features.batch import FeatureTable
from estimators.features.columns import KINDS
from estimators.features.kernel import DETAIL_NAMES
from estimators.features.workload import TOTAL_NAMES

_SETTINGS = {
    "objective": "reg:pseudohubererror",
    "max_depth": 6,
    "eta": 0.06,
    "min_child_weight": 5,
    "colsample_bytree": 0.3,
    "subsample": 0.7,
    "tree_method": "hist",
    "verbosity": 0,
}
#: Columns of `tree_inputs`.
COLUMNS = 1 + len(TOTAL_NAMES) + len(KINDS) + 2 * len(DETAIL_NAMES) + 1
#: Seconds that a kernel is at least weighted with.
_LEAST = 1e-9
#: Power of the weights in the mean that shows the costliest kernels.
_EMPHASIS = 4
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Trees:
    """A number per workload.

    Parameters
    ----------
    booster
        XGBoost's.
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

    def require_columns(self, columns: int) -> None:
        """Raises ValueError when the trees are not over that many columns."""
        if self.booster.num_features() != columns:
            raise ValueError(f"trees over {self.booster.num_features()} features, not {columns}")

    def to_builtins(self) -> Any:
        """The JSON object that XGBoost defines."""
        return msgspec.json.decode(self.booster.save_raw(raw_format="json"))

    @classmethod
    def from_builtins(cls, content: Any, threads: int) -> Trees:
        """The inverse. Raises ValueError when it is no booster."""
        import xgboost

        try:
            booster = xgboost.Booster({"nthread": threads})
            booster.load_model(bytearray(msgspec.json.encode(content)))
        except xgboost.core.XGBoostError as error:
            raise ValueError(str(error).partition("\n")[0]) from error
        return cls(booster)


def parallel_map(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """The function of each item, in order, on all processors of this process: XGBoost and LAPACK let other threads run,
    and one fit has little work for two. The results do not depend on the number of processors.
    """
    return list(Parallel(n_jobs=-1, prefer="threads")(delayed(function)(item) for item in items))


def tree_inputs(analytic: Analytic, table: FeatureTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of trees: the analytic part's prediction (log2 of microseconds), the totals, the share of each kind of
    work, and the details of kernels.

    Also the analytic part's log seconds, and the share of work that it never saw.
    """
    log_seconds, shares, unseen = analytic.predict(table.work)
    microseconds = (log_seconds + np.log(1e6)) / np.log(2)
    inputs = np.column_stack([microseconds, table.totals, shares, _details(analytic, table)])
    return inputs.astype(np.float32), log_seconds, unseen


def _details(analytic: Analytic, table: FeatureTable) -> np.ndarray:
    """The mean details of kernels, those of the costliest ones, and the share of the costliest in the cost of all."""
    if not table.kernels.nnz:  # nothing but views
        return np.zeros((len(table.work), 2 * len(DETAIL_NAMES) + 1))
    costs = np.maximum(table.kernel_work @ analytic.costs, _LEAST)
    means = [_means(table, costs**power) for power in (1, _EMPHASIS)]
    weighted = table.kernels.minimum(1.0).multiply(costs[None, :])
    largest = np.asarray(weighted.max(axis=1).todense()).ravel()
    return np.column_stack([*means, largest / np.maximum(table.kernels @ costs, _LEAST)])


def _means(table: FeatureTable, weights: np.ndarray) -> np.ndarray:
    """The weighted mean details of each workload's kernels; nothing where there are none."""
    sums = table.kernels @ weights
    weighted = table.kernels.multiply(weights[None, :]).tocsr() @ table.kernel_details.astype(np.float64)
    return np.asarray(weighted / np.where(sums > 0, sums, 1.0)[:, None])
