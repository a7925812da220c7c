"""What a search answers besides its cover, on problems without hardware."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collage.cost.cost import Cost
from collage.graph.candidates import CandidatePartition
from collage.search.phase import Searched, greedy_loss
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import candidate, graph_of, problem_of

CHAIN = graph_of([[], [0], [1]])
ALONE: dict[CandidatePartition, Cost | float] = {candidate(CHAIN, "x", [node]): 2.0 for node in range(3)}


def test_a_plan_says_what_a_greedy_placement_would_lose() -> None:
    """Greed takes {0, 1} for 3 and then 2 for the last node; the best cover takes 2 and then {1, 2} for 1."""
    costs = ALONE | {candidate(CHAIN, "y", [0, 1]): 3.0, candidate(CHAIN, "y", [1, 2]): 1.0}
    problem = problem_of(CHAIN, costs)
    searched = Searched(DijkstraSearcher().search(problem), problem)
    assert greedy_loss(searched) == pytest.approx(5.0 / 3.0 - 1.0)


def test_greed_costs_nothing_that_the_search_did_not_cost() -> None:
    """A lazy search leaves gaps; then there is no number."""
    problem = problem_of(CHAIN, ALONE)
    found = DijkstraSearcher().search(problem)
    fresh = replace(problem_of(CHAIN, ALONE), candidates=problem.candidates)
    assert math.isnan(greedy_loss(Searched(found, fresh)))
    assert all(fresh.known(c) is None for c in fresh.candidates)
