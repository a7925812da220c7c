"""Plans over two devices against brute force: copies are paid for once per value and device, and pay or do not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind, OpKind
from collage.search import SearchProblem
from collage.search.crossings import Crossings
from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.greedy import GreedySearcher
from tests.searchers.problems import candidate, covers, problem_of, shape

DEVICES = {"x": "cpu", "y": "cpu", "z": "cpu:1", "w": "cpu:2"}


def crossing(latency: float, rate: float = 0.0, devices: dict[str, str] | None = None) -> Crossings:
    names = sorted(set((devices or DEVICES).values()))
    copies = {(a, b): Transition(latency + i, rate) for i, a in enumerate(names) for b in names if a != b}
    return Crossings("cpu", devices or DEVICES, copies)


def copy_seconds(problem: SearchProblem, cover: Sequence[CandidatePartition]) -> float:
    """What the copies of a cover cost, told from where each node is computed and where it is read."""
    assert problem.crossings is not None
    nodes, home = problem.graph.nodes, problem.crossings.home
    backend = {i: c.backend for c in cover for i in c.sub_graph.inside}

    def lies(i: int) -> str:
        if nodes[i].kind is NodeKind.INPUT or (backend[i] == HOST and nodes[i].escapes):
            return home
        if backend[i] != HOST:
            return DEVICES[backend[i]]
        return lies(nodes[i].inputs[0]) if nodes[i].inputs else home

    wanted = {(i, lies(reader.index)) for reader in nodes if reader.is_coverable for i in reader.inputs}
    wanted |= {(i, home) for i in range(len(nodes)) if nodes[i].escapes}
    copies = problem.crossings.copies
    return sum(copies[lies(i), to].seconds(nodes[i].size) for i, to in wanted if lies(i) != to)


def least(problem: SearchProblem) -> float:
    """Seconds of the best of all covers."""
    found = []
    for cover in covers(problem):
        known = sum(problem.cost(c).seconds for c in cover)
        hand_overs = replace(problem, crossings=None).transition_total(cover)
        found.append(known + hand_overs + copy_seconds(problem, cover))
    return min(found)


def random_problem(seed: int) -> SearchProblem:
    """Inputs, shared values, nodes that may be on the host, candidates of three devices, some of them not convex."""
    rng = random.Random(seed)
    inputs, count = rng.randint(1, 2), rng.randint(2, 7)
    listed: list[tuple[str, OpKind | NodeKind, list[int]]] = [("input", NodeKind.INPUT, []) for _ in range(inputs)]
    for i in range(inputs, inputs + count):
        reads = rng.sample(range(max(0, i - 4), i), min(i, rng.randint(1, 2)))
        listed.append(("relu", OpKind.ELEMENTWISE, reads))
    sizes = [rng.randint(0, 2) for _ in listed]
    graph = DataflowGraph.from_edges(listed, sizes=sizes)
    nodes = list(graph.coverable)
    costs: dict[CandidatePartition, Cost | float] = {}
    for node in nodes:
        costs[candidate(graph, rng.choice("xy"), [node])] = float(rng.randint(2, 9))
        costs[candidate(graph, rng.choice("zw"), [node])] = float(rng.randint(0, 5))
        if rng.random() < 0.25:
            costs[candidate(graph, HOST, [node])] = 0.0
    for _ in range(rng.randint(0, 8)):
        group = rng.sample(nodes, min(len(nodes), rng.randint(2, 3)))
        costs[candidate(graph, rng.choice("xyzw"), group)] = float(rng.randint(0, 9))
    pairs = [(a, b) for a, b in (("x", "y"), ("y", "x")) if rng.random() < 0.5]
    problem = problem_of(graph, costs, {pair: Transition(float(rng.randint(0, 3))) for pair in pairs})
    return replace(problem, crossings=crossing(float(rng.randint(0, 3)), rng.choice((0.0, 1.0))))


@pytest.mark.parametrize("block", range(8))
def test_the_search_finds_what_brute_force_finds(block: int) -> None:
    for seed in range(block * 30, block * 30 + 30):
        problem = random_problem(seed)
        found = DijkstraSearcher().search(problem)
        assert found.cost.seconds == pytest.approx(least(problem)), seed
        assert found.lower_bound == pytest.approx(found.cost.seconds), seed


def test_other_searchers_account_for_copies() -> None:
    for seed in range(40):
        problem = random_problem(seed)
        for searcher in (BeamSearcher(), GreedySearcher()):
            found = searcher.search(problem)
            costs = sum(problem.cost(c).seconds for c in found.candidates)
            hand_overs = replace(problem, crossings=None).transition_total(found.candidates)
            assert found.cost.seconds == pytest.approx(costs + hand_overs + copy_seconds(problem, found.candidates))


def fan_out(price: float) -> SearchProblem:
    """An input, a value, and three readers of it that are fast on the second device, and their sum."""
    listed: list[tuple[str, OpKind | NodeKind, list[int]]] = [("input", NodeKind.INPUT, [])]
    reads = [[0], [1], [1], [1], [2, 3, 4]]
    listed += [("relu", OpKind.ELEMENTWISE, sources) for sources in reads]
    graph = DataflowGraph.from_edges(listed)
    costs: dict[CandidatePartition, Cost | float] = {candidate(graph, "x", [i]): 4.0 for i in (1, 2, 3, 4)}
    costs |= {candidate(graph, "z", [i]): 1.0 for i in (2, 3, 4)}
    costs[candidate(graph, "x", [5])] = 1.0
    return replace(problem_of(graph, costs), crossings=crossing(price, devices={"x": "cpu", "z": "cpu:1"}))


def test_a_plan_crosses_when_it_pays_and_does_not_when_it_does_not() -> None:
    # Crossing with all three saves 9 and takes one copy there and three back.
    cheap, dear = (DijkstraSearcher().search(fan_out(price)) for price in (1.0, 2.5))
    assert {backend for backend, nodes in shape(cheap) if nodes[0] in (2, 3, 4)} == {"z"}
    assert {backend for backend, _ in shape(dear)} == {"x"}
    assert cheap.cost.seconds == 4 + 3 + 1 + 1.0 + 3 * 2.0
