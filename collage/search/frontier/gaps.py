"""Closing gaps: covers between the corners of the hull, which no price finds, by a search within each budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from collage import plugins
from collage.search.frontier.errors import SquaredErrors
from collage.search.frontier.points import Frontier, FrontierPoint
from collage.search.limit import Limit
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher

#: A gap, relatively, that is left alone: sums of floats differ by as much.
_CLOSED = 1e-9


def closed(
    searcher: Searcher,
    problem: SearchProblem,
    errors: SquaredErrors,
    found: Frontier,
    limits: Sequence[float],
    time_left: Callable[[], float],
) -> Frontier:
    """The frontier with the best covers within each limit, as far as time allows, and with what is proven of them.

    Parameters
    ----------
    searcher
        Asked first; where it has no search within a limit, `dijkstra` does it.
    limits
        Squared errors.
    time_left
        Seconds for all; the limits that are still to come share it equally.
    """
    for i, squared_error in enumerate(limits):
        best, bound = found.within(squared_error), found.bound_within(squared_error)
        below = math.inf if best is None or not best.partitioning.cost.is_finite else best.seconds
        if bound >= below * (1.0 - _CLOSED):
            continue
        left = time_left() / (len(limits) - i)
        if left <= 0:
            break
        seconds = min(problem.time_left, left)
        posed = replace(problem, started=time.monotonic(), budget_s=None if math.isinf(seconds) else seconds)
        limit = Limit(errors.of, squared_error, found.price(squared_error), below)
        answer = searcher.search_within(posed, limit)
        if answer is None:
            searcher = plugins.load("searchers", "dijkstra")
            answer = searcher.search_within(posed, limit)
        if answer is None:
            continue
        if answer.partitioning is not None:
            found = found.with_points(
                [FrontierPoint(answer.partitioning, errors.total(answer.partitioning.candidates))]
            )
        found = replace(found, proven=tuple(sorted({*found.proven, (squared_error, answer.lower_bound)})))
    return found
