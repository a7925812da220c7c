"""The analytic part of the cost model: latency as a sum of work, each kind of work at a rate of its own.

A kernel costs a constant (dispatch, waking threads), its arithmetic over a rate, and its traffic over bandwidths. A
tensor that enters or leaves costs a conversion of layouts. All are added up (the alpha-beta model of Hockney 1994,
kernel by kernel). The costs per unit of work are never negative, and fitted by non-negative least squares (Lawson and
Hanson 1974) on relative errors, with weights that turn those into absolute errors of the logarithm (iteratively
reweighted). The model is linear and monotone, so it extrapolates to sizes and mixtures that no record is near. Trees
cannot do that.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np

from estimators.features.columns import FIRST_COLUMN, WORK, WORK_NAMES

_REWEIGHTINGS = 6
#: Larger log errors have no larger effect: outliers must not bend the rates.
_CLIP = 0.4
#: Ridge penalty, in units of the columns' norms: splits work that always comes together.
_RIDGE = 0.1
#: Seconds below which nothing is predicted.
_LEAST = 1e-7
_STARTS = list(FIRST_COLUMN.values())


class Analytic:
    """Fitted costs per unit of work.

    Parameters
    ----------
    costs
        float64 (`WORK`,): factors on the nominal seconds of `FeatureTable.work`, not negative.
    seen
        bool (`WORK`,): whether there was such work in the training set; other work costs as much as work that
        resembles it.
    """

    def __init__(self, costs: np.ndarray, seen: np.ndarray) -> None:
        self.costs = costs
        self.seen = seen

    @classmethod
    def fit(cls, work: np.ndarray, log_seconds: np.ndarray, weights: np.ndarray) -> Analytic:
        """Fit to workloads: their work, latencies and weights."""
        from scipy.optimize import nnls  # type: ignore[import-untyped]  # only fitting needs it

        seen = work.max(axis=0) > 0
        given, seconds = work[:, seen], np.exp(log_seconds)
        factors = 1.0 / seconds
        costs = np.zeros(len(WORK))
        for _ in range(_REWEIGHTINGS):
            scale = factors * np.sqrt(weights)
            scaled = given * scale[:, None]
            norms = np.maximum(np.linalg.norm(scaled, axis=0), 1e-12)
            left = np.vstack([scaled / norms, _RIDGE * np.eye(given.shape[1])])
            right = np.concatenate([seconds * scale, np.zeros(given.shape[1])])
            # The triangle of the QR decomposition is the same problem with as many rows as columns.
            small: np.ndarray = np.linalg.qr(np.column_stack([left, right]), mode="r")  # type: ignore[assignment]
            found, _ = nnls(small[:, :-1], small[:, -1], maxiter=50 * given.shape[1])
            costs[seen] = found / norms
            factors = _factors(np.maximum(given @ costs[seen], _LEAST), seconds)
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

    def to_builtins(self) -> dict[str, tuple[float, bool]]:
        """By name of work: its cost, and whether it was seen."""
        return dict(zip(WORK_NAMES, zip(self.costs.tolist(), self.seen.tolist(), strict=True), strict=True))

    @classmethod
    def from_builtins(cls, content: Any) -> Analytic:
        """The inverse. Raises ValueError where the content is something else."""
        given = msgspec.convert(content, dict[str, tuple[Annotated[float, msgspec.Meta(ge=0.0, le=1e300)], bool]])
        if not given.keys() >= set(WORK_NAMES):
            raise ValueError("the costs of some work are missing")
        return cls(np.array([given[name][0] for name in WORK_NAMES]), np.array([given[name][1] for name in WORK_NAMES]))


def _factors(predicted: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Factors that make residuals in seconds errors of the logarithm, of which large ones have less weight."""
    errors = np.log(predicted / seconds)
    close = np.abs(errors) < 1e-3
    factors = np.where(close, 1.0 / seconds, errors / np.where(close, 1.0, predicted - seconds))
    return np.asarray(factors * np.sqrt(np.minimum(1.0, _CLIP / np.maximum(np.abs(errors), 1e-9))))


def _alike(a: int, b: int) -> bool:
    return WORK[a].term == WORK[b].term and WORK[a].family == WORK[b].family
