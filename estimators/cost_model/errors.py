"""How wrong a cost model is, by backend and by operator class, on networks that it had not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from collage.errors import CollageError
from estimators.cost_model.model import CostModel
from estimators.features.operator import operator_class


@dataclass(frozen=True)
class ErrorRow:
    """The errors of one selection of records.

    Attributes
    ----------
    name: a backend, an operator class (of the selection's anchors, else of its first operator), or "all".
    count: records.
    mape: mean of |predicted - measured| / measured.
    within_10, within_20: share of records that are predicted within 10% and 20%.
    spearman: rank correlation; NaN for fewer than three records.
    coverage: share of records inside their interval.
    """

    name: str
    count: int
    mape: float
    within_10: float
    within_20: float
    spearman: float
    coverage: float

    @classmethod
    def of(cls, name: str, truth: np.ndarray, predicted: np.ndarray, half: np.ndarray) -> ErrorRow:
        """From log seconds and half-widths in the logarithm."""
        error = np.abs(np.exp(predicted - truth) - 1.0)
        ranked = len(truth) > 2 and np.ptp(truth) > 0 and np.ptp(predicted) > 0
        return cls(
            name=name,
            count=len(truth),
            mape=float(error.mean()),
            within_10=float(np.mean(error <= 0.1)),
            within_20=float(np.mean(error <= 0.2)),
            spearman=float(spearmanr(truth, predicted)[0]) if ranked else float("nan"),
            coverage=float(np.mean(np.abs(predicted - truth) <= half)),
        )


@dataclass(frozen=True)
class ErrorReport:
    """Cross-validated errors, and the points behind them.

    Attributes
    ----------
    rows: all, then each backend, then each operator class.
    points: (backend, operator class, measured seconds, predicted seconds) of each record.
    networks: groups of records that were left out in turn.
    """

    rows: tuple[ErrorRow, ...]
    points: tuple[tuple[str, str, float, float], ...]
    networks: int


class ReportingCostModel(CostModel):
    """A cost model that tells its errors: what `collage train` asks of an estimator's `train`."""

    def errors(self) -> ErrorReport:
        """Raises CollageError for a model that was loaded: the records it was fitted to are not in its file."""
        data, held = getattr(self, "training_set_", None), getattr(self, "held_", None)
        if data is None or held is None:
            raise CollageError("only a model that was just fitted knows its cross-validated errors")
        backends = np.array([r.key.backend for r in data.records])
        classes = np.array([operator_class(r.operators) for r in data.records])
        everything = np.ones(len(backends), dtype=bool)
        selections = [("all", everything)]
        selections += [(str(name), backends == name) for name in np.unique(backends)]
        selections += [(str(name), classes == name) for name in np.unique(classes)]
        truth, predicted, half = data.log_seconds, held.log_seconds, held.half_widths
        rows = tuple(ErrorRow.of(name, truth[at], predicted[at], half[at]) for name, at in selections)
        points = zip(backends, classes, np.exp(truth), np.exp(predicted), strict=True)
        return ErrorReport(
            rows=rows,
            points=tuple((str(b), str(c), float(t), float(p)) for b, c, t, p in points),
            networks=len(np.unique(data.groups)),
        )
