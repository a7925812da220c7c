"""Errors of a cost model, by backend and by operator class, on networks that it had not seen."""

from __future__ import annotations

import numpy as np

from collage.cost.estimator import Calibrated, ErrorReport, ErrorRow, Prediction
from estimators.cost_model.conformal import observed_coverage
from estimators.cost_model.data.training_set import TrainingSet
from estimators.cost_model.fit import HeldOut, asked_about
from estimators.cost_model.names import model_name
from estimators.features.operator import NAMED, operator_class

#: Nominal coverages of which the observed one is told, and how many records that takes.
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_LEAST = 30
#: Groups of records where there is but one network.
_PARTS = 10


def error_report(data: TrainingSet, held_out: HeldOut, coverage: float) -> ErrorReport:
    """The errors of held-out predictions; an operator class is that of a workload's anchors, else of its first
    operator, and products in eight bits are apart from their backend. `coverage` is what the half-widths promise.
    """
    backends = np.array([model_name(r) for r in data.records])
    classes = np.array([operator_class(r.operators) for r in data.records])
    names = [str(name) for name in np.unique(backends)]
    selections = [("all", np.ones(len(backends), dtype=bool))]
    selections += [(name, backends == name) for name in names]
    rows = [*selections, *((str(name), classes == name) for name in np.unique(classes))]
    truth, predicted, half = data.log_seconds, held_out.log_seconds, held_out.half_widths
    return ErrorReport(
        rows=tuple(_row(name, truth[at], predicted[at], half[at]) for name, at in rows),
        networks=len(np.unique(data.groups)),
        coverage=coverage,
        predictions=_predictions(data, held_out, backends),
        calibration=tuple(found for name, at in selections for found in _calibration(name, data, held_out, at)),
        unseen=_unseen(data, backends),
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


def _predictions(data: TrainingSet, held_out: HeldOut, names: np.ndarray) -> tuple[Prediction, ...]:
    center, half = held_out.log_seconds, held_out.half_widths
    numbers = zip(
        *(np.exp(of).tolist() for of in (data.log_seconds, center, center - half, center + half)), strict=True
    )
    about = zip(names.tolist(), data.groups.tolist(), data.records, strict=True)
    return tuple(Prediction(*who, *seconds) for who, seconds in zip(about, numbers, strict=True))


def _calibration(name: str, data: TrainingSet, held_out: HeldOut, at: np.ndarray) -> list[Calibrated]:
    """Of a selection of records. Widths are a factor for each coverage times an expected error (`conformal_quantile`),
    so that those of another coverage follow from those of one; the factor is of the other networks.
    """
    chosen = at & asked_about(data.groups, data.designed)
    if chosen.sum() < _LEAST:
        return []
    misses = np.abs(held_out.log_seconds - data.log_seconds)[chosen]
    groups = data.groups[chosen]
    if len(np.unique(groups)) < 2:
        groups = np.arange(len(groups)) % _PARTS
    scores = misses / np.maximum(held_out.half_widths[chosen], 1e-12)
    found = observed_coverage(scores, groups, np.array(_LEVELS))
    return [Calibrated(name, nominal, observed) for nominal, observed in zip(_LEVELS, found.tolist(), strict=True)]


def _unseen(data: TrainingSet, names: np.ndarray) -> dict[str, tuple[str, ...]]:
    seen: dict[str, set[str]] = {}
    for name, record in zip(names.tolist(), data.records, strict=True):
        seen.setdefault(name, set()).update(operator.removeprefix("relax.") for operator in record.operators)
    anywhere = set().union(*seen.values())
    found = {"any backend": NAMED - anywhere, **{name: anywhere - own for name, own in sorted(seen.items())}}
    return {where: tuple(sorted(operators)) for where, operators in found.items() if operators}
