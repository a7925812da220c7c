"""Reach: the sizes that a cost model has seen; beyond them it extrapolates, and should say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from estimators.features.columns import TOTAL_NAMES

#: Totals that say how large a workload is; logarithms to the base of 2.
SIZES = (
    "total_flops",
    "total_activation_bytes",
    "total_weight_bytes",
    "total_roofline",
    "entering_bytes",
    "leaving_bytes",
    "operators",
)
_COLUMNS = [TOTAL_NAMES.index(name) for name in SIZES]
#: Half as small, or twice as large, as anything seen is not far.
_MARGIN = 1.0


@dataclass(frozen=True)
class Reach:
    """The smallest and the largest of each of `SIZES` in a training set."""

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, totals: np.ndarray) -> Reach:
        seen = totals[:, _COLUMNS].astype(np.float64)
        return cls(seen.min(axis=0), seen.max(axis=0))

    def beyond(self, totals: np.ndarray) -> np.ndarray:
        """bool (workloads,): smaller or larger, in some respect, than what was seen."""
        asked = totals[:, _COLUMNS]
        return np.asarray(((asked < self.low - _MARGIN) | (asked > self.high + _MARGIN)).any(axis=1))

    def as_dict(self) -> dict[str, list[float]]:
        return {name: [float(self.low[i]), float(self.high[i])] for i, name in enumerate(SIZES)}

    @classmethod
    def from_dict(cls, content: Mapping[str, list[float]]) -> Reach:
        """The inverse. Raises KeyError, TypeError, IndexError or ValueError where the content is something else."""
        ends = np.array([[float(content[name][0]), float(content[name][1])] for name in SIZES])
        if not np.isfinite(ends).all():
            raise ValueError("the sizes that a model has seen are finite")
        return cls(ends[:, 0], ends[:, 1])
