"""Calibration: a cost model of one machine (or number of threads), adapted to another by a minute of measurements.

A hundred records are too few to train a model that took ten thousand. So the model stays, and only the logarithm of its
predictions is corrected: by a level, and by how latency changes with size, with arithmetic and with the number of
kernels, for each backend. The coefficients are those of Bayesian linear regression (Bishop 2006, 3.3) with the prior
"no change". Each record is weighted by the model's uncertainty, so predictions without evidence stay as they were.
Errors have heavy tails (Cauchy's, iteratively reweighted), because a minute has outliers, and too few records to
outvote them. Intervals are scaled until they hold the stated share of the records, each predicted by a calibration
without it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from estimators.cost_model.backend import Finite, NotNegative
from estimators.cost_model.conformal import conformal_quantile
from estimators.features.batch import FeatureTable
from estimators.features.operator import ANCHORS
from estimators.features.workload import TOTAL_NAMES

#: Terms of the correction, and the standard deviation that is expected of the coefficient of each.
TERMS = {"level": 1.0, "size": 0.3, "anchors": 0.3, "kernels": 0.3}
#: Half-width of a 90% interval, in standard deviations.
_NINETY = 1.645
_LEAST_SPREAD = 0.05
#: Standard deviations at which a record counts half.
_FAR = 1.0
_REWEIGHTINGS = 20
_ANCHOR_SHARES = [i for i, name in enumerate(TOTAL_NAMES) if name.removeprefix("share_") in ANCHORS]
_ROOFLINE, _KERNELS = TOTAL_NAMES.index("total_roofline"), TOTAL_NAMES.index("kernels")


class Calibration(msgspec.Struct, frozen=True):
    """What is added to the logarithm, and how much wider intervals are; its fields are those of the model file.

    Attributes
    ----------
    level, size, anchors, kernels
        The coefficients of `TERMS`.
    widening
        Factor on half-widths.
    """

    level: Finite
    size: Finite
    anchors: Finite
    kernels: Finite
    widening: NotNegative

    @classmethod
    def fit(
        cls,
        table: FeatureTable,
        log_predicted: np.ndarray,
        half_widths: np.ndarray,
        log_measured: np.ndarray,
        coverage: float,
    ) -> tuple[Calibration, np.ndarray]:
        """From workloads that were predicted and measured; also the prediction for each by the others' calibration."""
        inputs = _inputs(table)
        spread = np.maximum(half_widths / _NINETY, _LEAST_SPREAD)
        misses = log_measured - log_predicted
        prior = np.diag([sd**-2 for sd in TERMS.values()])
        coefficients, weights = np.zeros(len(TERMS)), np.ones(len(misses))
        for _ in range(_REWEIGHTINGS):
            scaled, rest = inputs * (weights / spread)[:, None], misses * weights / spread
            precision = scaled.T @ scaled + prior
            coefficients = np.linalg.solve(precision, scaled.T @ rest)
            far = np.abs(misses - inputs @ coefficients) / spread
            weights = np.sqrt(1.0 / (1.0 + (far / _FAR) ** 2))
        influence = np.einsum("ij,ji->i", scaled, np.linalg.solve(precision, scaled.T))
        without = (misses - inputs @ coefficients) / np.maximum(1.0 - influence, 1e-3)
        widening = conformal_quantile(np.abs(without) / np.maximum(half_widths, 1e-9), np.arange(len(rest)), coverage)
        return cls(
            **dict(zip(TERMS, coefficients.tolist(), strict=True)), widening=float(widening)
        ), log_measured - without

    def apply(
        self, table: FeatureTable, log_predicted: np.ndarray, half_widths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Calibrated log seconds and half-widths."""
        coefficients = np.array([getattr(self, term) for term in TERMS])
        return log_predicted + _inputs(table) @ coefficients, self.widening * half_widths


def _inputs(table: FeatureTable) -> np.ndarray:
    """(workloads, `TERMS`), each of the order of 1."""
    totals = table.totals.astype(np.float64)
    size = (totals[:, _ROOFLINE] - 6.0) / 4.0
    anchors = totals[:, _ANCHOR_SHARES].sum(axis=1)
    return np.column_stack([np.ones(len(totals)), size, anchors, (totals[:, _KERNELS] - 1.0) / 4.0])
