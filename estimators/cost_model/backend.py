"""The cost model of one backend: an analytic part, trees that correct it, and trees for the size of the error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np

from estimators.cost_model.analytic import Analytic
from estimators.cost_model.trees import COLUMNS, Trees, tree_inputs
from estimators.features.batch import FeatureTable
from estimators.features.workload import TOTAL_NAMES

Finite = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]

#: Log error beyond which errors of the latency count linearly.
SLOPE = 0.1
#: Share of a workload that is of kinds never seen beyond which its latency is a guess.
_UNSEEN = 0.1
#: Half as small, or twice as large, as anything seen is not far.
_MARGIN = 1.0


@dataclass(frozen=True)
class LatencyModel:
    """The analytic part and its correction.

    Attributes
    ----------
    analytic
        The sum of work.
    correction
        Added to its logarithm.
    """

    analytic: Analytic
    correction: Trees

    @classmethod
    def fit(
        cls,
        table: FeatureTable,
        log_seconds: np.ndarray,
        weights: np.ndarray,
        rounds: int,
        settings: Mapping[str, Any],
    ) -> LatencyModel:
        analytic = Analytic.fit(table.work, log_seconds, weights)
        inputs, sums, _ = tree_inputs(analytic, table)
        return cls(analytic, Trees.fit(inputs, log_seconds - sums, weights, rounds, SLOPE, settings))

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds; and the inputs of the error: the correction's, and the share of work never seen."""
        inputs, sums, unseen = tree_inputs(self.analytic, table)
        return sums + self.correction.predict(inputs), np.column_stack([inputs, unseen]).astype(np.float32)


class TrainingRange(msgspec.Struct, frozen=True):
    """The smallest and the largest workload of a training set, by each total that is a size (log2); beyond them a
    model extrapolates.
    """

    total_flops: tuple[Finite, Finite]
    total_activation_bytes: tuple[Finite, Finite]
    total_weight_bytes: tuple[Finite, Finite]
    total_roofline: tuple[Finite, Finite]
    entering_bytes: tuple[Finite, Finite]
    leaving_bytes: tuple[Finite, Finite]
    operators: tuple[Finite, Finite]

    @classmethod
    def of(cls, totals: np.ndarray) -> TrainingRange:
        seen = totals[:, _SIZES].astype(np.float64)
        return cls(*zip(seen.min(axis=0).tolist(), seen.max(axis=0).tolist(), strict=True))

    def beyond(self, totals: np.ndarray) -> np.ndarray:
        """bool (workloads,): smaller or larger, in some respect, than what was seen."""
        low, high = np.array(msgspec.structs.astuple(self)).T
        asked = totals[:, _SIZES]
        return np.asarray(((asked < low - _MARGIN) | (asked > high + _MARGIN)).any(axis=1))


_SIZES = [TOTAL_NAMES.index(name) for name in TrainingRange.__struct_fields__]


class BackendModel(msgspec.Struct, frozen=True, eq=False, rename={"training_range": "reach"}):
    """A fitted model; its fields are those of the model file (`estimators.cost_model.file`).

    Attributes
    ----------
    analytic, correction
        Predict latencies (`LatencyModel`).
    error
        The logarithm of the expected size of the log error.
    quantile
        So many expected errors hold the stated share of true latencies.
    training_range
        The sizes that it learned from.
    shift
        Added to the logarithm: of a backend whose model was learned from all backends' records.
    """

    analytic: Analytic
    correction: Trees
    error: Trees
    quantile: NotNegative
    training_range: TrainingRange
    shift: Finite

    def __post_init__(self) -> None:
        self.correction.require_columns(COLUMNS)
        self.error.require_columns(COLUMNS + 1)

    @property
    def latency(self) -> LatencyModel:
        return LatencyModel(self.analytic, self.correction)

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds, and half-widths of their intervals."""
        center, inputs = self.latency.predict(table)
        return center + self.shift, self.quantile * np.exp(self.error.predict(inputs))

    def far(self, table: FeatureTable) -> np.ndarray:
        """bool (workloads,): which are unlike anything that it learned from, in size or in kind."""
        unseen = self.analytic.predict(table.work)[2]
        return np.asarray(self.training_range.beyond(table.totals) | (unseen > _UNSEEN))
