"""Which gaps of a frontier are closed, and how far."""

from __future__ import annotations

import itertools
import math

import pytest

from collage.search import SearchProblem
from collage.search.frontier import Closing, frontier
from collage.search.limit import Limit, WithinLimit
from collage.testing.problems import random_given
from searchers.dijkstra import DijkstraSearcher
from tests.collage.search.test_frontier import BUDGETS, all_covers, check, errors_of, fastest


class Asked(DijkstraSearcher):
    """Remembers within which squared errors it searched."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: set[float] = set()

    def search_within(self, problem: SearchProblem, limit: Limit) -> WithinLimit:
        self.limits.add(limit.most)
        return super().search_within(problem, limit)


@pytest.mark.parametrize(
    ("closing", "closed"),
    [(Closing((1.7,)), {1.7}), (Closing(seconds=0.0), set()), (Closing(seconds=1000.0), {0.5, 1.0, 1.7, 2.3, 3.1})],
    ids=["one budget", "no time", "all"],
)
def test_gaps_are_closed_where_they_are_to_be(closing: Closing, closed: set[float]) -> None:
    seen: set[float] = set()
    for seed in range(25):
        problem = random_given(seed, size=6).problem()
        errors = errors_of(problem, seed)
        searcher = Asked()
        found = frontier(searcher, problem, errors.__getitem__, BUDGETS, {}, closing=closing)
        seen |= {round(math.sqrt(limit), 6) for limit in searcher.limits if 0 < limit < math.inf}
        everything = all_covers(problem, errors)
        check(found, everything)
        for budget in closed:
            best = found.best(budget)
            assert (math.inf if best is None else best.seconds) == pytest.approx(fastest(everything, budget))
    assert seen <= closed and bool(seen) == bool(closed)


def test_a_gap_within_the_tolerance_is_left() -> None:
    asked = dict.fromkeys((0.0, 0.3), 0)
    for seed, tolerance in itertools.product(range(25), asked):
        problem = random_given(seed, size=6).problem()
        errors = errors_of(problem, seed)
        searcher = Asked()
        found = frontier(
            searcher, problem, errors.__getitem__, BUDGETS, {}, closing=Closing((1.0, 1.7), tolerance=tolerance)
        )
        asked[tolerance] += len(searcher.limits)
        assert all(found.gap(budget) <= tolerance + 1e-9 for budget in (1.0, 1.7) if found.best(budget) is not None)
    assert asked[0.3] < asked[0.0]
