"""The cost model of one backend: an analytic part, trees that correct it, and how far both may be off.

How far it may be off is learned from what models say of networks that they have not seen, for that is what it will be
asked about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from estimators.cost_model.analytic import Analytic
from estimators.cost_model.conformal import conformal_quantile, group_weights
from estimators.cost_model.parallel import parallel_map
from estimators.cost_model.training_range import Reach
from estimators.cost_model.trees import COLUMNS, Trees, tree_inputs
from estimators.features.batch import FeatureTable

_FOLDS = 10
#: Records of designed blocks, one after another, that are in one fold.
_RUN = 100
#: With fewer networks, errors on designed blocks have a say in how wide intervals are.
_LEAST_NETWORKS = 5
_ERROR_ROUNDS = 60
#: Log errors beyond these count linearly: of the latency, and of the logarithm of the error's size.
SLOPE, _ERROR_SLOPE = 0.1, 0.3
#: Log error below which workloads are not told apart: the noise of measuring.
_NOISE = 0.02
#: Share of a workload that is of kinds never seen beyond which its latency is a guess.
_UNSEEN = 0.1


@dataclass(frozen=True)
class Held:
    """Predictions for workloads whose networks the predicting models had not seen: log seconds, and half-widths."""

    log_seconds: np.ndarray
    half_widths: np.ndarray


@dataclass(frozen=True)
class Point:
    """The analytic part and its correction.

    Attributes
    ----------
    analytic: the sum of work.
    correction: added to its logarithm.
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
    ) -> Point:
        analytic = Analytic.fit(table.work, log_seconds, weights)
        inputs, sums, _ = tree_inputs(analytic, table)
        return cls(analytic, Trees.fit(inputs, log_seconds - sums, weights, rounds, SLOPE, settings))

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds; and the inputs of the error: the correction's, and the share of work never seen."""
        inputs, sums, unseen = tree_inputs(self.analytic, table)
        return sums + self.correction.predict(inputs), np.column_stack([inputs, unseen]).astype(np.float32)


@dataclass(frozen=True)
class BackendModel:
    """A fitted model.

    Attributes
    ----------
    point: predicts.
    error: the logarithm of the expected size of its log error.
    quantile: so many expected errors hold the stated share of true latencies.
    reach: how large what it learned from was.
    shift: added to the logarithm: of a backend whose model was learned from all backends' records.
    """

    point: Point
    error: Trees
    quantile: float
    reach: Reach
    shift: float = 0.0

    def predict(self, table: FeatureTable) -> tuple[np.ndarray, np.ndarray]:
        """Log seconds, and half-widths of their intervals."""
        center, inputs = self.point.predict(table)
        return center + self.shift, self.quantile * np.exp(self.error.predict(inputs))

    def far(self, table: FeatureTable) -> np.ndarray:
        """bool (workloads,): which are unlike anything that it learned from, in size or in kind."""
        unseen = self.point.analytic.predict(table.work)[2]
        return np.asarray(self.reach.beyond(table.totals) | (unseen > _UNSEEN))

    def as_dict(self) -> dict[str, Any]:
        return {
            "analytic": self.point.analytic.as_dict(),
            "correction": self.point.correction.as_dict(),
            "error": self.error.as_dict(),
            "quantile": self.quantile,
            "reach": self.reach.as_dict(),
            "shift": self.shift,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], threads: int) -> BackendModel:
        """The inverse. Raises KeyError, TypeError or ValueError where the content is something else."""
        quantile, shift = float(content["quantile"]), float(content["shift"])
        if not (np.isfinite(quantile) and quantile >= 0 and np.isfinite(shift)):
            raise ValueError("its quantile and shift are finite")
        correction = Trees.from_dict(content["correction"], COLUMNS, threads)
        return cls(
            point=Point(Analytic.from_dict(content["analytic"]), correction),
            error=Trees.from_dict(content["error"], COLUMNS + 1, threads),
            quantile=quantile,
            reach=Reach.from_dict(content["reach"]),
            shift=shift,
        )


def fit_backend(
    table: FeatureTable,
    log_seconds: np.ndarray,
    weights: np.ndarray,
    groups: np.ndarray,
    designed: np.ndarray,
    rounds: int,
    coverage: float,
    settings: Mapping[str, Any],
) -> tuple[BackendModel, Held]:
    """Fit to workloads of one backend; also what the model says of each when its network is left out.

    Parameters
    ----------
    table, log_seconds, weights, groups, designed: one entry per workload; see `TrainingSet`.
    rounds: of boosting, for the correction.
    coverage: share of latencies that the intervals shall hold.
    settings: XGBoost's: seed and threads.
    """

    def point_of(rows: np.ndarray) -> Point:
        return Point.fit(table.take(rows), log_seconds[rows], weights[rows], rounds, settings)

    def error_of(rows: np.ndarray) -> Trees:
        return Trees.fit(inputs[rows], size[rows], say[rows], _ERROR_ROUNDS, _ERROR_SLOPE, settings)

    folds = _folds(groups, designed)
    parts = [*(train for train, _ in folds), np.arange(len(groups))]
    *without, point = parallel_map(point_of, parts)
    held = np.zeros(len(log_seconds))
    inputs = np.zeros((len(log_seconds), COLUMNS + 1), dtype=np.float32)
    for (_, test), ignorant in zip(folds, without, strict=True):
        held[test], inputs[test] = ignorant.predict(table.take(test))
    # A large network must not drown the others' errors, nor a small one's few records outweigh them all.
    say = weights * group_weights(groups) * len(groups)
    misses = np.abs(log_seconds - held)
    size = np.log(misses + _NOISE)
    *errors, error = parallel_map(error_of, parts)
    expected = np.zeros(len(size))
    for (_, test), known in zip(folds, errors, strict=True):
        expected[test] = known.predict(inputs[test])
    # Networks are what it will be asked about; they are measured more often than designed blocks, and so more exactly.
    asked = ~designed if len(np.unique(groups[~designed])) >= _LEAST_NETWORKS else np.ones(len(groups), dtype=bool)
    quantile = conformal_quantile((misses / np.exp(expected))[asked], groups[asked], coverage)
    model = BackendModel(
        point=point,
        error=error,
        quantile=quantile,
        reach=Reach.of(table.totals),
    )
    return model, Held(held, quantile * np.exp(expected))


def _folds(groups: np.ndarray, designed: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Folds of whole networks, over which designed blocks are spread; of single workloads where there is but one
    network, and nothing else.
    """
    networks = np.flatnonzero(~designed)
    found = len(np.unique(groups[networks]))
    parts = np.arange(len(groups)) % _FOLDS
    if found > 1 or designed.any():
        count = min(_FOLDS, max(2, found))
        # A block's records were taken one after another, so that runs of records part few blocks; a fold has many runs,
        # from all times, because a collection may have been of one kind of block for a while.
        run = max(1, min(_RUN, int(designed.sum()) // (2 * count)))
        parts[designed] = np.arange(designed.sum()) // run % count
        parts[networks] = 0
        if found > 1:
            for number, (_, test) in enumerate(GroupKFold(n_splits=count).split(networks, groups=groups[networks])):
                parts[networks[test]] = number
    return [(np.flatnonzero(parts != part), np.flatnonzero(parts == part)) for part in np.unique(parts)]
