"""Errors of a cost model, by backend and by operator class, on networks that it had not seen."""

from __future__ import annotations

import numpy as np

from collage.cost.estimator import ErrorReport, ErrorRow
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.fit import HeldOut
from estimators.cost_model.names import model_name
from estimators.features.operator import operator_class


def error_report(data: TrainingSet, held_out: HeldOut) -> ErrorReport:
    """The errors of held-out predictions; an operator class is that of a workload's anchors, else of its first
    operator, and products in eight bits are apart from their backend.
    """
    backends = np.array([model_name(r) for r in data.records])
    classes = np.array([operator_class(r.operators) for r in data.records])
    selections = [("all", np.ones(len(backends), dtype=bool))]
    selections += [(str(name), backends == name) for name in np.unique(backends)]
    selections += [(str(name), classes == name) for name in np.unique(classes)]
    truth, predicted, half = data.log_seconds, held_out.log_seconds, held_out.half_widths
    return ErrorReport(
        rows=tuple(_row(name, truth[at], predicted[at], half[at]) for name, at in selections),
        networks=len(np.unique(data.groups)),
    )


def _row(name: str, truth: np.ndarray, predicted: np.ndarray, half: np.ndarray) -> ErrorRow:
    """From log seconds and half-widths in the logarithm."""
    from scipy.stats import spearmanr  # type: ignore[import-untyped]  # as sklearn in `estimators.cost_model.fit`

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
