"""GreedySearcher: what it chooses, and what it cannot see."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from collage.cost.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import CandidatePartition
from searchers.dijkstra import DijkstraSearcher
from searchers.greedy import GreedySearcher
from tests.searchers.problems import candidate, graph_of, problem_of, shape

CHAIN = graph_of([[], [0], [1]])
ALONE: dict[CandidatePartition, Cost | float] = {candidate(CHAIN, "x", [node]): 2.0 for node in range(3)}


def test_the_cheapest_candidate_per_node_is_chosen_from_the_front() -> None:
    costs = ALONE | {candidate(CHAIN, "y", [0, 1]): 3.0, candidate(CHAIN, "y", [1, 2]): 1.0}
    found = GreedySearcher().search(problem_of(CHAIN, costs))
    assert shape(found) == {("y", (0, 1)), ("x", (2,))} and found.cost.seconds == 5.0
    assert DijkstraSearcher().search(problem_of(CHAIN, costs)).cost.seconds == 3.0, "what greed loses"
    assert found.lower_bound == 0.0 and "not the optimum" in found.notes[0]


def test_only_what_it_looks_at_is_costed() -> None:
    costs = ALONE | {candidate(CHAIN, "y", [0, 1, 2]): 1.0}
    problem = problem_of(CHAIN, costs)
    assert shape(GreedySearcher().search(problem)) == {("y", (0, 1, 2))}
    assert [str(c) for c in problem.candidates if problem.known(c) is None] == ["x{1}", "x{2}"]


def test_a_dead_end_is_not_called_infeasible() -> None:
    """{0, 1} looks cheap and leaves node 2, which is in {1, 2} only."""
    costs: dict[CandidatePartition, Cost | float] = {candidate(CHAIN, "x", [0, 1]): 1.0}
    costs |= {candidate(CHAIN, "x", [0]): 2.0, candidate(CHAIN, "x", [1, 2]): 2.0}
    with pytest.raises(CollageError, match=r"node 2.*dijkstra") as error:
        GreedySearcher().search(problem_of(CHAIN, costs))
    assert not isinstance(error.value, NoCoverError)


def test_it_is_registered() -> None:
    assert entry_points(group="collage.searchers")["greedy"].load() is GreedySearcher
