"""Frontier: the best covers found for every error budget, and lower bounds of all others.

A multiplier `price` (seconds per squared error) makes one number of a cover's two: seconds + price * squared error. If
no cover is below `value` by that number, none within a budget takes less than value - price * budget**2 (the Lagrangian
dual of the constrained problem). A search in two dimensions proves more, for the budget that it was made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from collage.search.partitioning import Partitioning

#: By which part the squared error of a cover may be above that of a budget: sums of floats depend on their order.
_ROUNDING = 1e-9


def allowed(max_error: float) -> float:
    """The greatest squared error within a budget.

    Raises
    ------
    ValueError
        The budget is negative, or not a number.
    """
    if not max_error >= 0:
        raise ValueError(f"an error budget is a number that is not negative, not {max_error}")
    return max_error * max_error * (1.0 + _ROUNDING)


@dataclass(frozen=True)
class FrontierPoint:
    """A cover and its error.

    Attributes
    ----------
    partitioning
        The cover; its cost is in seconds, and its `lower_bound` that of all covers whatever their error.
    squared_error
        The sum over its partitions.
    """

    partitioning: Partitioning
    squared_error: float

    @property
    def error(self) -> float:
        """Relative L2 error."""
        return math.sqrt(self.squared_error)

    @property
    def seconds(self) -> float:
        """Latency: NaN where a partition is of unknown cost."""
        return self.partitioning.cost.seconds


@dataclass(frozen=True)
class Frontier:
    """Covers and bounds of one set of candidates.

    Attributes
    ----------
    points
        The Pareto-optimal covers of all that were found, by ascending error.
    duals
        (price, value): no cover has less than `value` in seconds + price * squared error.
    proven
        (squared error, seconds): no cover of at most this squared error is faster.
    assumes_intervals
        Whether the bounds rest on predicted intervals, of what was not costed.
    """

    points: tuple[FrontierPoint, ...] = ()
    duals: tuple[tuple[float, float], ...] = ()
    proven: tuple[tuple[float, float], ...] = ()
    assumes_intervals: bool = False

    def best(self, max_error: float) -> FrontierPoint | None:
        """The fastest cover found within a budget; None when none was found."""
        return self.within(allowed(max_error))

    def within(self, squared_error: float) -> FrontierPoint | None:
        """The fastest cover found of at most this squared error."""
        limit = squared_error * (1.0 + _ROUNDING)
        return next((point for point in reversed(self.points) if point.squared_error <= limit), None)

    def bound(self, max_error: float) -> float:
        """Seconds: no cover within the budget is faster. Infinite when it is proven that there is none."""
        return self.bound_within(allowed(max_error))

    def bound_within(self, squared_error: float) -> float:
        """Seconds: no cover of at most this squared error is faster."""
        values = [seconds for limit, seconds in self.proven if squared_error <= limit]
        values += [_dual(price, value, squared_error) for price, value in self.duals]
        return max(values, default=0.0)

    def price(self, squared_error: float) -> float:
        """The price of the dual that proves most of covers of at most this squared error."""
        best = max(self.duals, key=lambda dual: _dual(dual[0], dual[1], squared_error), default=(0.0, 0.0))
        return best[0]

    def gap(self, max_error: float) -> float:
        """How much slower, relatively, the best cover is than the bound; infinite without a cover or a bound."""
        best, bound = self.best(max_error), self.bound(max_error)
        if best is None:
            return math.inf
        if bound <= 0:
            return 0.0 if best.seconds <= 0 else math.inf
        return max(0.0, best.seconds / bound - 1.0) if best.partitioning.cost.is_finite else math.nan

    def with_points(self, points: Iterable[FrontierPoint]) -> Frontier:
        """With further covers by the same candidates."""
        return replace(self, points=efficient([*self.points, *points]))

    def merged(self, other: Frontier) -> Frontier:
        """What either says, of the same candidates, costs and errors."""
        duals = tuple(sorted({*self.duals, *other.duals}))
        proven = tuple(sorted({*self.proven, *other.proven}))
        assumes = self.assumes_intervals or other.assumes_intervals
        return Frontier(efficient([*self.points, *other.points]), duals, proven, assumes)


def _dual(price: float, value: float, squared_error: float) -> float:
    return value - price * squared_error if price else value


def efficient(points: Iterable[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Those than which no other has less error without being slower, by ascending error; of equal ones the first."""
    kept: list[FrontierPoint] = []
    for point in sorted(points, key=lambda point: (point.squared_error, _known(point))):
        if not kept or _known(point) < _known(kept[-1]):
            kept.append(point)
    return tuple(kept)


def _known(point: FrontierPoint) -> float:
    """Seconds; an unknown cost comes after all others."""
    return math.inf if point.partitioning.cost.is_unknown else point.seconds
