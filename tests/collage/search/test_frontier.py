"""The frontier of latency and error against brute force, with searchers of all kinds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.graph.candidates import HOST, CandidatePartition
from collage.search import SearchProblem
from collage.search.frontier import Frontier, frontier
from collage.testing.problems import Given, covers, random_given, value
from searchers.dijkstra import DijkstraSearcher

SEEDS = st.integers(0, 10**6)
BUDGETS = (0.0, 0.5, 1.0, 1.7, 2.3, 3.1, math.inf)
Errors = Mapping[CandidatePartition, float]


def errors_of(made: Given, seed: int, disallowed: bool = False) -> Errors:
    """Whole numbers, so that there are ties; of some candidates none; or not allowed."""
    rng = random.Random(seed)
    choices = [0.0, 0.0, 0.25, 1.0, 2.0, 3.0] + ([math.inf, math.nan] if disallowed else [])
    return {c: rng.choice(choices) for c in made.costs}


def brute_force(problem: SearchProblem, errors: Errors) -> list[tuple[float, float]]:
    """(squared error, seconds) of every cover of known cost."""
    found = []
    for cover in covers(problem):
        squared_error = sum(errors[c] for c in cover if c.backend != HOST)
        unknown, _, seconds, *_ = value(problem, cover)
        if not unknown and math.isfinite(squared_error):
            found.append((squared_error, seconds))
    return found


def fastest(covers: list[tuple[float, float]], max_error: float) -> float:
    return min((seconds for error, seconds in covers if error <= max_error**2 + 1e-9), default=math.inf)


def check(found: Frontier, everything: list[tuple[float, float]]) -> None:
    """What holds of every frontier, whoever searched."""
    for left, right in zip(found.points, found.points[1:], strict=False):
        assert left.squared_error < right.squared_error and left.seconds > right.seconds
    bounds = [found.bound(budget) for budget in BUDGETS]
    assert all(one >= other - 1e-9 for one, other in itertools.pairwise(bounds))
    for budget, bound in zip(BUDGETS, bounds, strict=True):
        optimum = fastest(everything, budget)
        best = found.best(budget)
        assert optimum == math.inf or bound <= optimum + 1e-9
        assert (math.inf if best is None else best.seconds) >= optimum - 1e-9
        if best is not None:
            assert best.squared_error <= budget**2 + 1e-6
            assert any(math.isclose(best.seconds, s) and math.isclose(best.squared_error, e) for e, s in everything)
            assert found.gap(budget) >= best.seconds / bound - 1 - 1e-9 if bound else found.gap(budget) in (0, math.inf)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_points_and_bounds_hold_and_corners_of_the_hull_are_found(seed: int, disallowed: bool) -> None:
    made = random_given(seed, size=6)
    errors = errors_of(made, seed, disallowed)
    problem = made.problem()
    everything = brute_force(problem, errors)
    found = frontier(DijkstraSearcher(), problem, errors.__getitem__, BUDGETS, {})
    check(found, everything)
    assert found.bound(math.inf) == pytest.approx(fastest(everything, math.inf)) or not everything
    for price, least in found.duals:
        assert least == pytest.approx(min(seconds + price * error for error, seconds in everything))
