"""What ships unconfirmed: the simplest of the placements that costs cannot tell apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collage.confirm.confirmation import SEARCHED
from collage.confirm.ties import simplest, tie_notes
from collage.cost.cost import Cost
from collage.search import Partitioning, SearchProblem
from collage.testing.problems import candidate, graph_of, problem_of
from searchers.dijkstra import DijkstraSearcher


def problem(whole: float) -> SearchProblem:
    """Four operators, for one second each in parts on x and y by turns, or all at once on x."""
    graph = graph_of([[], [0], [1], [2]])
    parts = {candidate(graph, "xy"[i % 2], [i]): 1.0 for i in range(4)}
    others = {candidate(graph, "yx"[i % 2], [i]): 9.0 for i in range(4)}
    return problem_of(graph, {**parts, **others, candidate(graph, "x", [0, 1, 2, 3]): whole})


def test_a_difference_inside_the_intervals_is_a_tie() -> None:
    graph = graph_of([[], [0]])
    costs = {candidate(graph, "xy"[i], [i]): Cost(1.0, 0.2) for i in range(2)}
    whole = candidate(graph, "x", [0, 1])
    for spread, name in ((0.1, "x alone"), (0.0, SEARCHED)):
        given = problem_of(graph, {**costs, whole: Cost(2.35, spread)})
        found = DijkstraSearcher().search(given)
        assert simplest(given, found, {"x alone": given.partitioning([whole])})[0] == name


def test_what_was_left_after_one_sample_because_it_is_far_slower_does_not_tie() -> None:
    """Seen on a busy machine: the interval of a single sample reaches down to 0."""
    graph = graph_of([[], [0]])
    costs = {candidate(graph, "x", [0]): Cost(22e-6, 1e-6), candidate(graph, "x", [1]): Cost(30e-6, 26e-6)}
    slow = candidate(graph, "y", [0, 1])
    given = problem_of(graph, {**costs, slow: Cost(5301e-6, 5301e-6, samples=1)})
    found = DijkstraSearcher().search(given)
    assert simplest(given, found, {"y alone": given.partitioning([slow])})[0] == SEARCHED


def alone(of: SearchProblem) -> dict[str, Partitioning]:
    covers = {
        "x alone": [c for c in of.candidates if len(c.sub_graph.inside) == 4],
        "y alone": [c for c in of.candidates if c.backend == "y"],
    }
    return {name: of.partitioning(cover) for name, cover in covers.items()}


@pytest.mark.parametrize(("whole", "name"), [(4.05, "x alone"), (4.2, SEARCHED), (3.0, SEARCHED)])
def test_a_tie_goes_to_fewer_partitions(whole: float, name: str) -> None:
    given = problem(whole)
    found = DijkstraSearcher().search(given)
    chosen = simplest(given, found, alone(given))
    assert chosen[0] == name
    assert len(chosen[1].candidates) == (4 if whole == 4.2 else 1)
    assert bool(tie_notes(found, chosen[0])) == (name != SEARCHED)


@pytest.mark.parametrize(
    ("y", "priorities", "name"),
    [(4.05, {"x": 2, "y": 1}, "y alone"), (4.05, {"x": 1, "y": 2}, SEARCHED), (4.2, {"x": 2, "y": 1}, SEARCHED)],
)
def test_of_equally_simple_placements_the_preferred_one_ships(y: float, priorities: dict[str, int], name: str) -> None:
    graph = graph_of([[], [0]])
    whole = {candidate(graph, "x", [0, 1]): 4.0, candidate(graph, "y", [0, 1]): y}
    given = replace(problem_of(graph, whole), priorities=priorities)
    covers = {f"{c.backend} alone": given.partitioning([c]) for c in whole}
    found = DijkstraSearcher().search(given)
    chosen = simplest(given, found, covers)
    assert chosen[0] == name
    assert bool(tie_notes(found, chosen[0])) == (name != SEARCHED)
