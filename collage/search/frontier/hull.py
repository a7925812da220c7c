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
from collage.search.frontier.costs import LeastCosts, PricedCosts, SquaredErrors, least_costs
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
#: A gap, relatively, at which no further price is tried.
_CLOSE = 5e-3
#: How often what is not costed of a cover is costed, and the search repeated, before its bound is taken as it is.
COSTINGS = 16


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
        #: prices at which another search would find nothing new; infinity stands for covers without any error
        self._fresh: set[float] = set()
        self._least: dict[CandidatePartition, float] | None = None
        #: squared error -> seconds that no cover within it takes less than, and for how many candidates
        self._proven: dict[float, tuple[float, int]] = {}

    @property
    def frontier(self) -> Frontier:
        """What is known of the candidates as they are now."""
        now = len(self.problem.candidates)
        duals = tuple(sorted((price, value) for price, (value, size) in self._duals.items() if size == now))
        proven = [(limit, value) for limit, (value, size) in self._proven.items() if size == now]
        assumes = any(self.problem.known(c) is None and math.isfinite(self.errors.of(c)) for c in self._least or ())
        return Frontier(efficient(self.points), duals, tuple(sorted(proven)), assumes)

    def start_proof(self) -> None:
        """From now on candidates stay as they are. What is not costed costs the least that it may, so that bounds hold
        if intervals do, and is costed where a search chooses it.
        """
        self._least = least_costs(self.problem.cost_table, self.problem.candidates)
        if self.problem.cost_table.intervals is not None:
            for proven in (self._duals, self._proven, self._fresh):
                proven.clear()  # a lazy searcher takes what is not costed to be free

    @property
    def least_problem(self) -> SearchProblem:
        """The problem in which what is not costed costs the least that it may."""
        return replace(self.problem, cost_table=LeastCosts(self.problem.cost_table, self._least or {}))

    def prove(self, squared_error: float, seconds: float) -> None:
        """Take notice that no cover within this squared error is faster."""
        now = len(self.problem.candidates)
        before, size = self._proven.get(squared_error, (0.0, now))
        self._proven[squared_error] = max(seconds, before if size == now else 0.0), now

    def add(self, found: Partitioning) -> bool:
        """Keep a cover, with what of it was not costed; whether all of it was."""
        uncosted = [c for c in found.candidates if self.problem.known(c) is None]
        chosen = self.problem.partitioning(found.candidates, notes=found.notes)
        least = self._least or {}
        self._lower(sum(max(0.0, least.get(c, 0.0) - self.problem.cost(c).seconds) for c in uncosted))
        cover = frozenset(chosen.candidates)
        if not chosen.cost.is_invalid and all(cover != frozenset(p.partitioning.candidates) for p in self.points):
            self.points.append(FrontierPoint(chosen, self.errors.total(chosen.candidates)))
        return not uncosted

    def _lower(self, seconds: float) -> None:
        """Intervals did not hold: no cover is better than what was proven by more than what they missed in all."""
        if seconds > 0:
            self._duals = {price: (max(0.0, value - seconds), size) for price, (value, size) in self._duals.items()}
            self._proven = {limit: (max(0.0, value - seconds), size) for limit, (value, size) in self._proven.items()}
            self._fresh.clear()

    def approach_all(self, limits: Sequence[float]) -> None:
        """Search for the hull around each of these squared errors, as far as time allows.

        Raises
        ------
        NoCoverError
            There is no cover, and that is not because of what is not allowed.
        """
        self.find_ends()
        for limit in limits:
            self.approach(limit)

    @property
    def is_fresh(self) -> bool:
        """Whether all that was searched last still stands."""
        return 0.0 in self._fresh

    def find_ends(self) -> None:
        """The fastest cover, and one of least error: the fastest without any error if there is one.

        Raises
        ------
        NoCoverError
            There is no cover, and that is not because of what is not allowed.
        """
        try:
            if self._unknown_at(0.0):
                self._search_at(0.0)
        except NoCoverError:
            if all(math.isfinite(self.errors.of(c)) for c in self.problem.candidates):
                raise
            return  # what is not allowed was needed
        if math.inf in self._fresh:
            return
        try:
            found = self._search(lambda seconds, error: seconds, most=0.0)
            self.prove(0.0, found.lower_bound)
            self._fresh.add(math.inf)
        except CollageError:  # every cover has an error, or the searcher came to a dead end
            self._fresh.add(math.inf)
            if not any(point.squared_error == 0 for point in self.points):
                self._find_least_error()

    def approach(self, limit: float) -> None:
        """Search until no better price is known for the budget of this squared error, or time is up."""
        for _ in range(_MOST_PRICES):
            price = self.price(limit)
            if price is None or not self._unknown_at(price) or self._time_left() <= 0 or self._is_close(limit):
                return
            try:
                self._search_at(price)
            except CollageError:  # its budget was spent before it found a cover
                return

    def _is_close(self, limit: float) -> bool:
        """Whether so little is left of the gap that a search within the limit is quicker than further prices."""
        found = self.frontier
        best = found.within(limit)
        return best is not None and best.seconds <= found.bound_within(limit) * (1.0 + _CLOSE)

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
        return not any(math.isclose(price, known, rel_tol=_SAME_PRICE) for known in self._fresh)

    def _search_at(self, price: float) -> None:
        found = self._search(lambda seconds, error: seconds + price * error)
        now = len(self.problem.candidates)
        before, size = self._duals.get(price, (0.0, now))
        self._duals[price] = max(found.lower_bound, before if size == now else 0.0), now
        self._fresh.add(price)

    def _find_least_error(self) -> None:
        """A cover of least error; its latency, and what it costs to change the backend, are left out."""
        errors = [self.errors.of(c) for c in self.problem.candidates]
        greatest = max(error for error in errors if math.isfinite(error))
        try:
            self._search(lambda seconds, error: error / greatest, transitions=False)
        except CollageError:
            return

    def _search(
        self,
        weigh: Callable[[float, float], float],
        *,
        most: float = sys.float_info.max,
        transitions: bool = True,
    ) -> Partitioning:
        """Search with other costs, among candidates of at most this squared error, and keep what is found.

        The answer's bound is for the candidates as they are after it.
        """
        joining = self._least is None
        for _ in range(COSTINGS):
            problem = self.problem if joining else self.least_problem
            posed = replace(
                problem,
                candidates=CandidateSet(c for c in problem.candidates if self.errors.of(c) <= most),
                cost_table=PricedCosts(problem.cost_table, self.errors, weigh),
                latency_table=LatencyTable(),  # runs end to end know nothing of prices
                transitions=problem.transitions if transitions else {},
                crossings=problem.crossings if transitions else None,
            )
            posed = self._within_time(posed)
            if joining and transitions and self._backends:
                searched = search(self._searcher, posed, self._backends)
                self._add_candidates(searched.problem.candidates)
                found = searched.partitioning
            else:
                found = self._searcher.search(posed)
            if self.add(found):
                break
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
            self._fresh.clear()


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
