"""Gaps of the frontier: covers between the corners of the hull are found by a search within each budget.

No price on errors finds them, because a price finds only corners of the hull.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collage import plugins
from collage.search.frontier.hull import COSTINGS, Hull
from collage.search.limit import Limit
from collage.search.searcher import Searcher

#: A gap, relatively, that is left alone: sums of floats differ by as much.
_CLOSED = 1e-9


@dataclass(frozen=True)
class Closing:
    """Which gaps are closed, and how far.

    Attributes
    ----------
    max_errors
        The budgets; None is all that the frontier is asked for. Of the others the hull is known.
    tolerance
        A gap, relatively, that is left.
    seconds
        That the searches may take, with what they cost of candidates; None for no limit of their own.
    """

    max_errors: tuple[float, ...] | None = None
    tolerance: float = 0.0
    seconds: float | None = None


#: All gaps, to the end.
ALL_GAPS = Closing()


def close_gaps(
    searcher: Searcher, hull: Hull, limits: Sequence[float], time_left: Callable[[], float], tolerance: float = 0.0
) -> None:
    """Search the fastest covers within each limit, as far as time allows, and take notice of what that proves.

    Parameters
    ----------
    searcher
        Asked first; where it has no search within a limit, `dijkstra` does it.
    hull
        Its candidates are final.
    limits
        Squared errors.
    time_left
        Seconds for all; the limits that are still to come share it equally.
    tolerance
        A gap, relatively, that is left.
    """
    for i, squared_error in enumerate(limits):
        share = time_left() / (len(limits) - i)
        ends = time_left() - share
        for _ in range(COSTINGS):
            found = hull.frontier
            best, bound = found.within(squared_error), found.bound_within(squared_error)
            below = math.inf if best is None or not best.partitioning.cost.is_finite else best.seconds
            problem = hull.least_problem
            seconds = min(problem.time_left, time_left() - ends if math.isfinite(share) else math.inf)
            if bound * (1.0 + tolerance) >= below * (1.0 - _CLOSED) or seconds <= 0:
                break
            posed = replace(problem, started=time.monotonic(), budget_s=None if math.isinf(seconds) else seconds)
            limit = Limit(hull.errors.of, squared_error, found.price(squared_error), below)
            answer = searcher.search_within(posed, limit)
            if answer is None:
                searcher = plugins.load("searchers", "dijkstra")
                answer = searcher.search_within(posed, limit)
            if answer is None:
                return
            hull.prove(squared_error, answer.lower_bound)
            if answer.partitioning is None or hull.add(answer.partitioning):
                break
