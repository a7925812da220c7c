"""The lower hull of latency and squared error, by one search per price.

With a price on errors every searcher finds a cover of the lower convex hull, and its lower bound is a value of the
Lagrangian dual. For one budget the price at which the dual is greatest is the slope of the hull there. It is found by
searching at the slope between the two known covers on either side, until no cover is below the line between them
(Handler and Zang, *A Dual Algorithm for the Constrained Shortest Path Problem*, Networks 1980).
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from collage.backends.base import Backend
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.search.frontier.errors import PricedCosts, SquaredErrors
from collage.search.frontier.points import Frontier, FrontierPoint, efficient
from collage.search.partitioning import Partitioning
from collage.search.phase import search
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher
from collage.search.tables import LatencyTable

#: Two prices are one if they differ by less than this part.
_SAME_PRICE = 1e-9
#: Searches per budget at most: a searcher that is not exact may find covers that lead nowhere.
_MOST_PRICES = 64


class Hull:
    """Covers and duals of a problem, found by a searcher that knows nothing of errors.

    Parameters
    ----------
    problem
        Its candidates may become more, as searches put partitions side by side that can be joined.
    backends
        Of the partitions to be joined; none joins nothing.
    time_left
        Seconds that searches of known costs may take.

    Attributes
    ----------
    problem
        With all candidates that came up.
    errors
        Of its candidates.
    points
        Covers found, distinct.
    """

    def __init__(
        self,
        searcher: Searcher,
        problem: SearchProblem,
        errors: SquaredErrors,
        backends: Mapping[str, Backend],
        time_left: Callable[[], float],
    ) -> None:
        self.problem = problem
        self.points: list[FrontierPoint] = []
        self._searcher = searcher
        self.errors = errors
        self._backends = backends
        self._time_left = time_left
        #: price -> the dual's value, and how many candidates it is for
        self._duals: dict[float, tuple[float, int]] = {}
        self._without_error: tuple[float, int] | None = None

    @property
    def frontier(self) -> Frontier:
        """What is known of the candidates as they are now."""
        now = len(self.problem.candidates)
        duals = tuple(sorted((price, value) for price, (value, size) in self._duals.items() if size == now))
        proven = []
        if self._without_error is not None and self._without_error[1] == now:
            proven.append((0.0, self._without_error[0]))
        return Frontier(efficient(self.points), duals, tuple(proven))

    def find_ends(self, joining: bool) -> None:
        """The fastest cover, and one of least error: the fastest without any error if there is one.

        Raises
        ------
        NoCoverError
            There is no cover, and that is not because of what is not allowed.
        """
        try:
            if self._unknown_at(0.0):
                self._search_at(0.0, joining)
        except NoCoverError:
            if all(math.isfinite(self.errors.of(c)) for c in self.problem.candidates):
                raise
            return  # what is not allowed was needed
        if self._without_error is not None and self._without_error[1] == len(self.problem.candidates):
            return
        try:
            found = self._search(lambda seconds, error: seconds, joining, most=0.0)
            self._without_error = max(0.0, found.lower_bound), len(self.problem.candidates)
        except CollageError:  # every cover has an error, or the searcher came to a dead end
            self._without_error = 0.0, len(self.problem.candidates)
            if not any(point.squared_error == 0 for point in self.points):
                self._find_least_error()

    def approach(self, limit: float, joining: bool) -> None:
        """Search until no better price is known for the budget of this squared error, or time is up."""
        for _ in range(_MOST_PRICES):
            price = self.price(limit)
            if price is None or not self._unknown_at(price) or self._time_left() <= 0:
                return
            try:
                self._search_at(price, joining)
            except CollageError:  # its budget was spent before it found a cover
                return

    def price(self, limit: float) -> float | None:
        """Minus the slope of the hull of the known covers at a squared error; None below all."""
        corners = _lower_hull(self.points)
        if not corners or corners[0].squared_error > limit:
            return None
        for left, right in itertools.pairwise(corners):
            if right.squared_error > limit:
                return (left.seconds - right.seconds) / (right.squared_error - left.squared_error)
        return 0.0

    def _unknown_at(self, price: float) -> bool:
        now = len(self.problem.candidates)
        return not any(
            size == now and math.isclose(price, known, rel_tol=_SAME_PRICE) for known, (_, size) in self._duals.items()
        )

    def _search_at(self, price: float, joining: bool) -> None:
        found = self._search(lambda seconds, error: seconds + price * error, joining)
        self._duals[price] = max(0.0, found.lower_bound), len(self.problem.candidates)

    def _find_least_error(self) -> None:
        """A cover of least error; its latency, and what it costs to change the backend, are left out."""
        errors = [self.errors.of(c) for c in self.problem.candidates]
        greatest = max(error for error in errors if math.isfinite(error))
        try:
            self._search(lambda seconds, error: error / greatest, joining=False, transitions=False)
        except CollageError:
            return

    def _search(
        self,
        weigh: Callable[[float, float], float],
        joining: bool,
        *,
        most: float = sys.float_info.max,
        transitions: bool = True,
    ) -> Partitioning:
        """Search with other costs, among candidates of at most this squared error, and keep what is found.

        The answer's bound is for the candidates as they are after it.
        """
        problem = self.problem
        posed = replace(
            problem,
            candidates=CandidateSet(c for c in problem.candidates if self.errors.of(c) <= most),
            cost_table=PricedCosts(problem.cost_table, self.errors, weigh),
            latency_table=LatencyTable(),  # runs end to end know nothing of prices
            transitions=problem.transitions if transitions else {},
            crossings=problem.crossings if transitions else None,
        )
        posed = self._within_time(posed)
        if joining and self._backends:
            searched = search(self._searcher, posed, self._backends)
            self._add_candidates(searched.problem.candidates)
            found = searched.partitioning
        else:
            found = self._searcher.search(posed)
        self._add_point(found)
        return found

    def _within_time(self, posed: SearchProblem) -> SearchProblem:
        """With a budget, unless it would be spent on costs."""
        left = min(posed.time_left, self._time_left())
        if math.isinf(left) or any(posed.known(c) is None for c in posed.candidates):
            return posed
        return replace(posed, budget_s=max(0.0, left), started=time.monotonic())

    def _add_candidates(self, found: Sequence[CandidatePartition]) -> None:
        candidates = CandidateSet([*self.problem.candidates, *found])
        if len(candidates) > len(self.problem.candidates):
            self.problem = replace(self.problem, candidates=candidates)

    def _add_point(self, found: Partitioning) -> None:
        chosen = self.problem.partitioning(found.candidates, notes=found.notes)
        point = FrontierPoint(chosen, self.errors.total(chosen.candidates))
        if all(set(point.partitioning.candidates) != set(known.partitioning.candidates) for known in self.points):
            self.points.append(point)


def _lower_hull(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """The corners of the lower convex hull of the points of known cost, by ascending error and falling seconds."""
    corners: list[FrontierPoint] = []
    for point in efficient(points):
        if not point.partitioning.cost.is_finite:
            continue
        while len(corners) > 1 and _not_below(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return corners


def _not_below(left: FrontierPoint, middle: FrontierPoint, right: FrontierPoint) -> bool:
    """Whether the point in the middle is on or above the line between the others."""
    falls = (left.seconds - middle.seconds) * (right.squared_error - left.squared_error)
    return falls <= (left.seconds - right.seconds) * (middle.squared_error - left.squared_error)
