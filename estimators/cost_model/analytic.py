"""The analytic part of the cost model: latency as a sum of work, each kind of work at a rate of its own.

A kernel costs a constant (dispatch, waking threads), its arithmetic over a rate, and its traffic over bandwidths; a
tensor that enters or leaves costs a conversion of layouts; all are added up (the alpha-beta model of Hockney 1994,
kernel by kernel). The costs per unit of work are never negative, and fitted by non-negative least squares (Lawson and
Hanson 1974) on relative errors, with weights that turn those into absolute errors of the logarithm (iteratively
reweighted). Being linear and monotone it says something sensible of sizes and mixtures that no record is near, which
trees cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from estimators.features.columns import FIRST_COLUMN, WORK, WORK_NAMES

_REWEIGHTINGS = 6
#: Log errors beyond this pull no harder: outliers must not bend the rates.
_CLIP = 0.4
#: Ridge penalty, in units of the columns' norms: splits work that always comes together.
_RIDGE = 0.1
#: Seconds below which nothing is predicted.
_LEAST = 1e-7
_STARTS = list(FIRST_COLUMN.values())


@dataclass(frozen=True)
class Analytic:
    """Fitted costs per unit of work.

    Attributes
    ----------
    costs: float64 (`WORK`,): factors on the nominal seconds of `FeatureTable.work`, not negative.
    seen: bool (`WORK`,): whether there was such work in the training set; of other work the cost is that of work that
        resembles it.
    """

    costs: np.ndarray
    seen: np.ndarray

    @classmethod
    def fit(cls, work: np.ndarray, log_seconds: np.ndarray, weights: np.ndarray) -> Analytic:
        """Fit to workloads: their work, latencies and weights."""
        seen = work.max(axis=0) > 0
        held, seconds = work[:, seen], np.exp(log_seconds)
        factors = 1.0 / seconds
        costs = np.zeros(len(WORK))
        for _ in range(_REWEIGHTINGS):
            scale = factors * np.sqrt(weights)
            scaled = held * scale[:, None]
            norms = np.maximum(np.linalg.norm(scaled, axis=0), 1e-12)
            left = np.vstack([scaled / norms, _RIDGE * np.eye(held.shape[1])])
            right = np.concatenate([seconds * scale, np.zeros(held.shape[1])])
            # The triangle of their QR decomposition poses the same problem in as many rows as there are columns.
            small: np.ndarray = np.linalg.qr(np.column_stack([left, right]), mode="r")  # type: ignore[assignment]
            found, _ = nnls(small[:, :-1], small[:, -1], maxiter=50 * held.shape[1])
            costs[seen] = found / norms
            factors = _factors(np.maximum(held @ costs[seen], _LEAST), seconds)
        known = np.flatnonzero(seen).tolist()
        for column in np.flatnonzero(~seen).tolist():
            like = [costs[i] for i in known if _alike(i, column)]
            costs[column] = float(np.median(like)) if like else 0.0
        return cls(costs, seen)

    def predict(self, work: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log seconds, the share of each kind (workloads, `KINDS`), and the share of work never seen."""
        parts = work * self.costs
        seconds = np.maximum(parts.sum(axis=1), _LEAST)
        shares = np.add.reduceat(parts, _STARTS, axis=1) / seconds[:, None]
        return np.log(seconds), shares, parts[:, ~self.seen].sum(axis=1) / seconds

    def as_dict(self) -> dict[str, list[float | bool]]:
        """By name of work: its cost, and whether it was seen."""
        return {name: [float(self.costs[i]), bool(self.seen[i])] for i, name in enumerate(WORK_NAMES)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Sequence[float | bool]]) -> Analytic:
        """The inverse. Raises KeyError, TypeError or ValueError where the content is something else."""
        costs = np.array([content[name][0] for name in WORK_NAMES], dtype=float)
        if not (np.isfinite(costs).all() and (costs >= 0).all()):
            raise ValueError("the costs of work are finite and not negative")
        return cls(costs, np.array([content[name][1] for name in WORK_NAMES], dtype=bool))


def _factors(predicted: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """What to multiply residuals in seconds with: then they are errors of the logarithm, large ones pulling less."""
    errors = np.log(predicted / seconds)
    close = np.abs(errors) < 1e-3
    factors = np.where(close, 1.0 / seconds, errors / np.where(close, 1.0, predicted - seconds))
    return np.asarray(factors * np.sqrt(np.minimum(1.0, _CLIP / np.maximum(np.abs(errors), 1e-9))))


def _alike(a: int, b: int) -> bool:
    return WORK[a].term == WORK[b].term and WORK[a].family == WORK[b].family
