"""DijkstraSearcher against an independent method on larger graphs: an integer program, solved by HiGHS.

One 0/1 variable per candidate, one equation per node (it is in exactly one chosen candidate), and for every cycle found
among the chosen candidates a cut that forbids it, until the answer is acyclic.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from collage.graph.candidates import CandidatePartition
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.search import SearchProblem
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import candidate, graph_of, problem_of


def random_problem(size: int, reach: int, seed: int) -> SearchProblem:
    """A graph in which nodes read up to two of the `reach` before them; convex candidates of up to five nodes."""
    rng = random.Random(seed)
    graph = graph_of(
        [sorted({rng.randrange(max(0, i - reach), i) for _ in range(2)}) if i else [] for i in range(size)]
    )
    costs: dict[CandidatePartition, float] = {}
    for backend, discount in (("x", 0.8), ("y", 0.7), ("z", 0.6)):
        for node in range(size):
            costs[candidate(graph, backend, [node])] = rng.uniform(1, 2)
            inside = IndexSet([node])
            for _ in range(4):
                beside = sorted({*SubGraph(graph, inside).outputs, *SubGraph(graph, inside).inputs})
                inside = inside | IndexSet([rng.choice(beside)]) if beside else inside
                if SubGraph(graph, inside).is_convex and len(inside) > 1:
                    costs[candidate(graph, backend, inside)] = rng.uniform(1, 2) * len(inside) * discount
    return problem_of(graph, costs)


def integer_program(problem: SearchProblem) -> float:
    candidates = list(problem.candidates)
    weights = np.array([cost.seconds for cost in problem.costs(candidates)])
    pairs = [(node, i) for i, c in enumerate(candidates) for node in c.sub_graph.inside]
    rows, columns = zip(*pairs, strict=True)
    once = csr_array((np.ones(len(pairs)), (rows, columns)), shape=(len(problem.graph), len(candidates)))
    constraints = [LinearConstraint(once, 1, 1)]
    while True:
        answer = milp(weights, integrality=np.ones(len(candidates)), bounds=Bounds(0, 1), constraints=constraints)
        assert answer.success, answer.message
        chosen = [i for i, taken in enumerate(answer.x) if taken > 0.5]
        cycle = a_cycle(problem, candidates, chosen)
        if not cycle:
            return float(answer.fun)
        cut = np.zeros(len(candidates))
        cut[cycle] = 1
        constraints.append(LinearConstraint(cut, -np.inf, len(cycle) - 1))


def a_cycle(problem: SearchProblem, candidates: Sequence[CandidatePartition], chosen: Sequence[int]) -> list[int]:
    """Candidates among the chosen that depend on each other in a ring; empty when there are none."""
    owner = {node: i for i in chosen for node in candidates[i].sub_graph.inside}
    reads: dict[int, set[int]] = {i: set() for i in chosen}
    for node in problem.graph.nodes:
        reads[owner[node.index]].update(owner[s] for s in node.inputs if owner[s] != owner[node.index])
    while runnable := [i for i in reads if not reads[i]]:
        for i in runnable:
            del reads[i]
        for sources in reads.values():
            sources.difference_update(runnable)
    if not reads:
        return []
    walk = [min(reads)]  # everybody left reads somebody left: going upstream comes back in the end
    while (source := min(reads[walk[-1]])) not in walk:
        walk.append(source)
    return walk[walk.index(source) :]


@pytest.mark.parametrize(("size", "reach"), [(40, 2), (40, 5), (80, 3), (80, 6), (200, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_the_cost_equals_the_integer_program_s(size: int, reach: int, seed: int) -> None:
    problem = random_problem(size, reach, seed)
    found = DijkstraSearcher().search(problem)
    assert found.gap == 0
    assert found.cost.seconds == pytest.approx(integer_program(problem), abs=1e-6)
