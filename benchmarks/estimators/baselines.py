"""What a cost model has to be better than: the roofline alone, a ridge regression, the nearest recorded neighbour.

All have the interface of the cost model (`fit(records)`, `predict(records)`), treat each backend on its own, and have
no intervals. The last two see the features that the cost model sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from collage.records import Record
from estimators.features.batch import FeatureTable, Roofline, Task, features_of

Vector = npt.NDArray[np.float64]


class Model(Protocol):
    """What is compared. A model with intervals also has `predict_interval(records) -> (low, high)`."""

    def fit(self, records: Sequence[Record]) -> Any: ...

    def predict(self, records: Sequence[Record]) -> Vector: ...


class PerBackend(ABC):
    """A model for each backend; NaN for one that was not trained."""

    def fit(self, records: Sequence[Record]) -> PerBackend:
        self._fitted: dict[str, Any] = {}
        for backend, rows in _by_backend(records).items():
            chosen = [records[i] for i in rows]
            self._fitted[backend] = self._fit(chosen, np.array([record.seconds for record in chosen], dtype=float))
        return self

    def predict(self, records: Sequence[Record]) -> Vector:
        """Seconds."""
        result = np.full(len(records), np.nan)
        for backend, rows in _by_backend(records).items():
            if backend in self._fitted:
                result[rows] = self._predict(self._fitted[backend], [records[i] for i in rows])
        return result

    @abstractmethod
    def _fit(self, records: Sequence[Record], seconds: Vector) -> Any:
        """What is kept of one backend's records."""

    @abstractmethod
    def _predict(self, fitted: Any, records: Sequence[Record]) -> Vector:
        """Seconds, by what was kept."""


class RooflineAlone(PerBackend):
    """The roofline alone: each operator takes the longer of its arithmetic and its traffic at the device's nominal
    rates (Williams, Waterman, Patterson 2009), and their sum is as far from what is measured as it is in the median of
    the backend's training records.
    """

    def _fit(self, records: Sequence[Record], seconds: Vector) -> float:
        return float(np.median(seconds / _roofline_seconds(records)))

    def _predict(self, fitted: float, records: Sequence[Record]) -> Vector:
        return fitted * _roofline_seconds(records)


class Regressed(PerBackend):
    """A regression of log seconds on standardised features.

    Parameters
    ----------
    regressor
        Makes an untrained scikit-learn regressor.
    """

    def __init__(self, regressor: Callable[[], Any]) -> None:
        self.regressor = regressor

    def _fit(self, records: Sequence[Record], seconds: Vector) -> Any:
        pipeline = make_pipeline(StandardScaler(), self.regressor())
        return pipeline.fit(_vectors(records), np.log(seconds))

    def _predict(self, fitted: Any, records: Sequence[Record]) -> Vector:
        # Far from its training set a linear model predicts absurd logarithms; impossible latencies are cut off.
        predicted: Vector = np.clip(fitted.predict(_vectors(records)), np.log(1e-7), np.log(1e3))
        return np.exp(predicted)


#: What makes an untrained one, by name.
BASELINES: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {
        "roofline": RooflineAlone,
        "ridge": lambda: Regressed(lambda: RidgeCV(alphas=np.logspace(-2, 4, 13))),
        "nearest": lambda: Regressed(lambda: KNeighborsRegressor(n_neighbors=1)),
    }
)


def _by_backend(records: Sequence[Record]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, record in enumerate(records):
        rows[record.key.backend].append(row)
    return rows


def _table(records: Sequence[Record]) -> FeatureTable:
    tasks = [Task(r.key.structure, r.description or {}, r.key.composites, r.key.threads) for r in records]
    return features_of(tasks, Roofline.of(records[0].device))


def _vectors(records: Sequence[Record]) -> Vector:
    """The cost model's features of each record as one vector: totals, and work (microseconds) on a log scale."""
    table = _table(records)
    return np.hstack([table.totals, np.log2(1.0 + 1e6 * table.work)])


def _roofline_seconds(records: Sequence[Record]) -> Vector:
    return _table(records).roofline
