"""The search for a frontier: the hull by prices, then the covers between its corners by labels of two dimensions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from collage.backends.base import Backend
from collage.search.frontier.costs import SquaredError, SquaredErrors
from collage.search.frontier.gaps import ALL_GAPS, Closing, close_gaps
from collage.search.frontier.hull import Hull
from collage.search.frontier.points import Frontier, allowed
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher

#: How often bounds are searched again, where costs turned out to be below the intervals that bounds rest on.
_PROOFS = 4


def frontier(
    searcher: Searcher,
    problem: SearchProblem,
    squared_error: SquaredError,
    max_errors: Sequence[float],
    backends: Mapping[str, Backend],
    *,
    closing: Closing = ALL_GAPS,
    budget_s: float | None = None,
) -> Frontier:
    """The least-latency covers within error budgets, and lower bounds of all others.

    Parameters
    ----------
    searcher
        Any; that of one cost finds the hull.
    problem
        In seconds.
    squared_error
        Of a candidate; that of a cover is the sum. Infinite, or NaN, for one that is not allowed.
    max_errors
        The budgets: bounds on the square root of the sum.
    backends
        Name -> backend, for joining neighbouring partitions (`collage.search.coalescing`); none joins nothing.
    closing
        Within which of the budgets covers between the corners of the hull are searched, and how long.
    budget_s
        Seconds for all, without the time that costs take; None for what the searcher allows itself. The fastest cover
        and one of least error are searched in any case.

    Raises
    ------
    NoCoverError
        No cover of finite cost exists, and that is not because of errors that are not allowed.
    ValueError
        A budget is negative or not a number, or a squared error is negative.
    """
    limits = sorted({allowed(max_error) for max_error in max_errors})
    time_left = _clock(budget_s)
    hull = Hull(searcher, problem, SquaredErrors(squared_error), backends, time_left)
    hull.approach_all(limits)
    hull.start_proof()  # of candidates that still became more, nothing is proven
    for _ in range(_PROOFS):
        hull.approach_all(limits)
        if hull.is_fresh:
            break
    closed = limits if closing.max_errors is None else sorted({allowed(max_error) for max_error in closing.max_errors})
    own = _clock(closing.seconds)
    close_gaps(searcher, hull, closed, lambda: min(time_left(), own()), closing.tolerance)
    found = hull.frontier
    fastest = found.bound(math.inf)
    points = [replace(p, partitioning=replace(p.partitioning, lower_bound=fastest)) for p in found.points]
    return replace(found, points=tuple(points))


def _clock(seconds: float | None) -> Callable[[], float]:
    """What is left of so many seconds from now; infinity for None."""
    ends = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: ends - time.monotonic()
