"""Calibration: a cost model of one machine (or number of threads), adapted to another by a minute of measurements.

A hundred records cannot teach what ten thousand taught, so the model keeps what it knows, and only its logarithm is
bent: by a level, and by how latency changes with size, with arithmetic and with the number of kernels, for each
backend. The coefficients are those of Bayesian linear regression (Bishop 2006, 3.3) whose prior says "no change", and
which weighs each record by how sure the model was of it: what the records do not show stays as it was. Errors have
heavy tails (Cauchy's, iteratively reweighted): a minute has outliers, and not enough records to outvote them. Intervals
are scaled until they hold the stated share of the records, each told by a calibration without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from estimators.cost_model.conformal import conformal_quantile
from estimators.features.batch import FeatureTable
from estimators.features.columns import TOTAL_NAMES
from estimators.features.operator import ANCHORS

#: What the logarithm is bent by, and the standard deviation of each coefficient that is expected beforehand.
TERMS = {"level": 1.0, "size": 0.3, "anchors": 0.3, "kernels": 0.3}
#: Half-width of a 90% interval, in standard deviations.
_NINETY = 1.645
_LEAST_SPREAD = 0.05
#: Standard deviations at which a record counts half.
_DOUBTFUL = 1.0
_REWEIGHTINGS = 20
_ANCHOR_SHARES = [i for i, name in enumerate(TOTAL_NAMES) if name.removeprefix("share_") in ANCHORS]
_ROOFLINE, _KERNELS = TOTAL_NAMES.index("total_roofline"), TOTAL_NAMES.index("kernels")


@dataclass(frozen=True)
class Calibration:
    """What is added to the logarithm, and how much wider intervals are.

    Attributes
    ----------
    coefficients: one for each of `TERMS`.
    widening: factor on half-widths.
    """

    coefficients: tuple[float, ...] = (0.0,) * len(TERMS)
    widening: float = 1.0

    @classmethod
    def fit(
        cls, table: FeatureTable, log_told: np.ndarray, half_widths: np.ndarray, log_seen: np.ndarray, coverage: float
    ) -> tuple[Calibration, np.ndarray]:
        """From workloads that were told and measured; also what each would be told by the others' calibration."""
        inputs = _inputs(table)
        spread = np.maximum(half_widths / _NINETY, _LEAST_SPREAD)
        misses = log_seen - log_told
        prior = np.diag([sd**-2 for sd in TERMS.values()])
        coefficients, pull = np.zeros(len(TERMS)), np.ones(len(misses))
        for _ in range(_REWEIGHTINGS):
            scaled, rest = inputs * (pull / spread)[:, None], misses * pull / spread
            precision = scaled.T @ scaled + prior
            coefficients = np.linalg.solve(precision, scaled.T @ rest)
            far = np.abs(misses - inputs @ coefficients) / spread
            pull = np.sqrt(1.0 / (1.0 + (far / _DOUBTFUL) ** 2))
        influence = np.einsum("ij,ji->i", scaled, np.linalg.solve(precision, scaled.T))
        without = (misses - inputs @ coefficients) / np.maximum(1.0 - influence, 1e-3)
        widening = conformal_quantile(np.abs(without) / np.maximum(half_widths, 1e-9), np.arange(len(rest)), coverage)
        return cls(tuple(map(float, coefficients)), float(widening)), log_seen - without

    def apply(
        self, table: FeatureTable, log_told: np.ndarray, half_widths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return log_told + _inputs(table) @ np.array(self.coefficients), self.widening * half_widths

    def as_dict(self) -> dict[str, float]:
        return {**dict(zip(TERMS, self.coefficients, strict=True)), "widening": self.widening}

    @classmethod
    def from_dict(cls, content: Mapping[str, float]) -> Calibration:
        """The inverse. Raises KeyError, TypeError or ValueError where the content is something else."""
        numbers = [float(content[name]) for name in (*TERMS, "widening")]
        if not np.isfinite(numbers).all() or numbers[-1] < 0:
            raise ValueError("the numbers of a calibration are finite")
        return cls(tuple(numbers[:-1]), numbers[-1])


def _inputs(table: FeatureTable) -> np.ndarray:
    """(workloads, `TERMS`), each of the order of 1."""
    totals = table.totals.astype(np.float64)
    size = (totals[:, _ROOFLINE] - 6.0) / 4.0
    anchors = totals[:, _ANCHOR_SHARES].sum(axis=1)
    return np.column_stack([np.ones(len(totals)), size, anchors, (totals[:, _KERNELS] - 1.0) / 4.0])
