"""How wrong a cost model is, by backend and by operator class, on networks that it had not seen."""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from collage.errors import CollageError
from collage.estimate import ErrorReport, ErrorRow
from estimators.cost_model.model import CostModel
from estimators.features.operator import operator_class


class ReportingCostModel(CostModel):
    """A cost model that states its errors: a `collage.estimate.TrainedModel`."""

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
        rows = tuple(_row(name, truth[at], predicted[at], half[at]) for name, at in selections)
        return ErrorReport(rows=rows, networks=len(np.unique(data.groups)))


def _row(name: str, truth: np.ndarray, predicted: np.ndarray, half: np.ndarray) -> ErrorRow:
    """From log seconds and half-widths in the logarithm."""
    error = np.abs(np.exp(predicted - truth) - 1.0)
    ranked = len(truth) > 2 and np.ptp(truth) > 0 and np.ptp(predicted) > 0
    return ErrorRow(
        name=name,
        count=len(truth),
        mape=float(error.mean()),
        within_10=float(np.mean(error <= 0.1)),
        within_20=float(np.mean(error <= 0.2)),
        spearman=float(spearmanr(truth, predicted)[0]) if ranked else float("nan"),
        coverage=float(np.mean(np.abs(predicted - truth) <= half)),
    )
