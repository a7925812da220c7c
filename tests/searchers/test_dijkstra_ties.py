"""Ties, unknown costs, transitions and budgets: what DijkstraSearcher answers where costs alone do not decide."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.errors import CollageError
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import Searcher, SearchProblem
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import candidate, graph_of, problem_of, shape

PRIORITIES = {"first": 1, "second": 2}


def tie_heavy(order: random.Random | None = None) -> SearchProblem:
    """A ladder of 24 nodes in which every backend costs the same, so that only tie rules decide."""
    graph = graph_of([[], *([max(0, i - 2), i - 1] if i % 3 == 0 else [i - 1] for i in range(1, 24))])
    found = []
    for backend in ("second", "first", "third"):
        for start in range(24):
            found += [candidate(graph, backend, range(start, end)) for end in range(start + 1, min(24, start + 4) + 1)]
    if order is not None:
        order.shuffle(found)
    costs = {c: 0.1 * len(c.sub_graph.inside) for c in found}
    return problem_of(graph, costs, {("first", "third"): 0.1, ("third", "first"): 0.1}, PRIORITIES)


def test_fewer_partitions_win_a_tie_even_with_costs_that_do_not_add_up_in_floats() -> None:
    graph = graph_of([[], [0]])
    assert 0.1 + 0.2 != 0.3
    costs = {candidate(graph, "x", [0]): 0.1, candidate(graph, "x", [1]): 0.2, candidate(graph, "x", [0, 1]): 0.3}
    assert shape(DijkstraSearcher().search(problem_of(graph, costs))) == {("x", (0, 1))}


def test_the_declared_priority_wins_among_equal_costs_and_counts() -> None:
    graph = graph_of([[]])
    costs = {candidate(graph, backend, [0]): 1.0 for backend in ("second", "first", "a backend without priority")}
    found = DijkstraSearcher().search(problem_of(graph, costs, priorities=PRIORITIES))
    assert shape(found) == {("first", (0,))}


def test_the_order_of_the_candidates_does_not_matter() -> None:
    expected = DijkstraSearcher().search(tie_heavy())
    for seed in range(10):
        assert shape(DijkstraSearcher().search(tie_heavy(random.Random(seed)))) == shape(expected)
    assert {c.backend for c in expected.partitions} == {"first"} and len(expected.partitions) == 6


@pytest.mark.long
def test_the_answer_does_not_depend_on_the_hash_seed() -> None:
    root = Path(__file__).resolve().parents[2]
    script = (
        "from tests.searchers.test_dijkstra_ties import tie_heavy, DijkstraSearcher\n"
        "found = DijkstraSearcher().search(tie_heavy())\n"
        "print(*found.candidates, found.cost, found.notes)"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(answers) == 1 and "first{" in answers.pop()


def test_a_transition_is_paid_once_per_pair_of_partitions() -> None:
    """{0,1} hands two tensors to {2}: one transition."""
    graph = graph_of([[], [], [0, 1]])
    costs = {candidate(graph, "x", [0, 1]): 1.0, candidate(graph, "y", [2]): 1.0, candidate(graph, "x", [2]): 1.6}
    found = DijkstraSearcher().search(problem_of(graph, costs, {("x", "y"): 0.5}))
    assert shape(found) == {("x", (0, 1)), ("y", (2,))} and found.cost.seconds == 2.5


def test_a_transition_can_make_a_dearer_backend_the_better_one() -> None:
    graph = graph_of([[], [0], [1]])
    costs = {candidate(graph, "x", [node]): 1.0 for node in range(3)} | {candidate(graph, "y", [1]): 0.5}
    between = {("x", "y"): 0.3, ("y", "x"): 0.3}
    assert {c.backend for c in DijkstraSearcher().search(problem_of(graph, costs, between)).partitions} == {"x"}
    between = {("x", "y"): 0.2, ("y", "x"): 0.2}
    assert DijkstraSearcher().search(problem_of(graph, costs, between)).cost.seconds == pytest.approx(2.9)


def test_bytes_are_paid_once_per_tensor_and_reading_partition() -> None:
    """{0,1} hands 3 bytes of node 0, which {2,3} reads twice, and 4 bytes of node 1; {4} reads node 0 again."""
    graph = graph_of([[], [], [0, 1], [0], [0]], sizes=[3, 4, 9, 9, 9])
    costs = {candidate(graph, "x", [0, 1]): 1.0, candidate(graph, "y", [2, 3]): 1.0, candidate(graph, "y", [4]): 1.0}
    found = DijkstraSearcher().search(problem_of(graph, costs, {("x", "y"): Transition(100.0, 10.0)}))
    assert found.cost.seconds == found.lower_bound == 3 + (100 + 70) + (100 + 30)


@pytest.mark.parametrize(("size", "backend"), [(1, "y"), (10, "x")])
def test_the_bytes_of_a_tensor_decide_where_it_goes(size: int, backend: str) -> None:
    graph = graph_of([[], [0]], sizes=[size, 1])
    costs = {candidate(graph, "x", [0]): 1.0, candidate(graph, "x", [1]): 2.0, candidate(graph, "y", [1]): 1.0}
    found = DijkstraSearcher().search(problem_of(graph, costs, {("x", "y"): Transition(0.2, 0.3)}))
    assert found.partitions[-1].backend == backend


def test_a_node_on_the_host_hands_on_what_it_reads_and_counts_as_no_partition() -> None:
    graph = graph_of([[], [0], [1]], ["relu", "tuple_get", "relu"], sizes=[8, 2, 8])
    costs = {candidate(graph, "x", [0]): 1.0, candidate(graph, HOST, [1]): 0.0, candidate(graph, "y", [2]): 1.0}
    transitions = {(a, b): Transition(9.0, 1.0) for a in "xy" for b in ("x", "y", HOST)}
    found = DijkstraSearcher().search(problem_of(graph, costs, transitions))
    assert found.cost.seconds == 2 + 9 + 2 and len(found.partitions) == 2 and len(found.candidates) == 3


def test_staying_with_a_backend_across_the_host_is_free() -> None:
    """A reshape between two calls: y is cheaper for the second by less than the change costs."""
    graph = graph_of([[], [0], [1], [2]], ["relu", "reshape", "reshape", "relu"])
    costs = {candidate(graph, HOST, [node]): 0.0 for node in (1, 2)} | {candidate(graph, "x", [0]): 1.0}
    costs |= {candidate(graph, "x", [3]): 2.0, candidate(graph, "y", [3]): 1.5}
    for seconds, last in ((0.4, "y"), (0.6, "x")):
        found = DijkstraSearcher().search(problem_of(graph, costs, {("x", "y"): seconds}))
        assert found.partitions[-1].backend == last and found.cost.seconds == pytest.approx(min(3.0, 2.5 + seconds))


def test_a_tuple_on_the_host_hands_on_what_each_partition_gave() -> None:
    graph = graph_of([[], [], [0, 1], [2]], ["relu", "relu", "tuple", "concat"], sizes=[1, 1, 2, 2])
    costs = {candidate(graph, "x", [0]): 1.0, candidate(graph, "z", [1]): 1.0, candidate(graph, HOST, [2]): 0.0}
    costs |= {candidate(graph, "y", [3]): 1.0}
    transitions = {("x", "y"): Transition(10.0, 1.0), ("z", "y"): Transition(20.0), ("x", "z"): Transition(1000.0)}
    assert DijkstraSearcher().search(problem_of(graph, costs, transitions)).cost.seconds == 3 + (10 + 2) + 20


def test_unknown_costs_are_ordered_by_priority_and_the_notes_say_so() -> None:
    graph = graph_of([[], [0]])
    costs: dict[CandidatePartition, Cost | float] = {
        candidate(graph, backend, [node]): Cost.unknown("not measured") for backend in PRIORITIES for node in (0, 1)
    }
    found = DijkstraSearcher().search(problem_of(graph, costs, priorities=PRIORITIES))
    assert shape(found) == {("first", (0,)), ("first", (1,))}
    assert found.cost.is_unknown and found.lower_bound == 0
    assert "declared priority" in found.notes[0] and "first{0}" in found.notes[1]


def test_a_known_cost_is_preferred_to_an_unknown_one() -> None:
    graph = graph_of([[]])
    costs: dict[CandidatePartition, Cost | float] = {
        candidate(graph, "first", [0]): Cost.unknown(),
        candidate(graph, "second", [0]): 5.0,
    }
    found = DijkstraSearcher().search(problem_of(graph, costs, priorities=PRIORITIES))
    assert shape(found) == {("second", (0,))} and found.cost.seconds == 5
    assert found.lower_bound == 0 and "unknown" in found.notes[0], "the unknown one might have been free"


def test_costs_are_asked_for_in_one_batch() -> None:
    problem = tie_heavy()
    batches: list[int] = []
    estimate = problem.cost_table.estimate
    problem.cost_table.estimate = lambda candidates: (batches.append(len(candidates)), estimate(candidates))[1]
    DijkstraSearcher().search(problem)
    assert batches == [len(problem.candidates)]


def wide(width: int, depth: int) -> SearchProblem:
    """Every node reads two of the layer before; pairs may be joined; many covers are nearly as good as the best."""
    rng = random.Random(7)
    inputs: list[list[int]] = [[] for _ in range(width)]
    for layer in range(1, depth):
        inputs += [sorted(rng.sample(range((layer - 1) * width, layer * width), 2)) for _ in range(width)]
    graph = graph_of(inputs)
    costs = {candidate(graph, b, [node]): rng.uniform(1, 1.2) for b in "xyz" for node in range(len(inputs))}
    for node, sources in enumerate(inputs):
        costs |= {candidate(graph, b, [source, node]): rng.uniform(1.7, 2.2) for b in "xyz" for source in sources}
    return problem_of(graph, costs, {(a, b): 0.05 for a in "xyz" for b in "xyz" if a != b})


@pytest.mark.long
def test_a_spent_budget_is_said_with_a_proven_gap_and_more_states_never_hurt() -> None:
    gaps = []
    for states in (300, 3_000, 30_000):
        found = DijkstraSearcher(max_states=states, time_limit_s=None).search(wide(6, 7))
        assert 0 < found.lower_bound <= found.cost.seconds
        assert found.gap == 0 or "budget was spent" in found.notes[-1]
        gaps.append(found.cost.seconds)
    assert gaps == sorted(gaps, reverse=True)
    tight = DijkstraSearcher(max_states=300).search(wide(6, 7))
    assert tight.gap > 0 and "at most" in tight.notes[-1]


def test_the_problem_s_own_budget_counts() -> None:
    problem = replace(wide(10, 8), budget_s=0.0)
    found = DijkstraSearcher(max_states=None).search(problem)
    assert found.gap > 0 and "budget was spent" in found.notes[-1]


def test_a_budget_spent_before_any_cover_is_not_called_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one state kept per layer, {0} is kept and leads nowhere: only {0,2} and {1} cover the graph."""
    monkeypatch.setattr("searchers.cover_search.layered_search._WIDTHS", (1, None))
    graph = graph_of([[], [], [0, 1]])
    costs = {candidate(graph, "x", nodes): float(len(nodes)) for nodes in ([0], [0, 2], [1])}
    with pytest.raises(CollageError, match="budget was spent") as error:
        DijkstraSearcher(max_states=1).search(problem_of(graph, costs))
    assert type(error.value) is CollageError
    assert DijkstraSearcher().search(problem_of(graph, costs)).cost.seconds == 3


def test_parameters_are_stored_shown_and_pickled() -> None:
    searcher = DijkstraSearcher(time_limit_s=5)
    assert isinstance(searcher, Searcher)
    assert repr(searcher).startswith("DijkstraSearcher(time_limit_s=5, max_states=1000000")
    assert pickle.loads(pickle.dumps(searcher)).get_params() == searcher.get_params()
