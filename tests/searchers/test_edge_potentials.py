"""The bound with transitions: below every cover, never falling on the way to one, exact on chains, tight on cells.

Brute force tries all covers; nothing is taken from the search but its own rules of what a move costs.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.search_scaling import BACKENDS, TRANSITION_S, enumerate_candidates, made_up_costs, nasnet_like
from collage.cost.transition import Transition
from collage.graph.candidates import CandidatePartition
from collage.search import CostTable, SearchProblem
from searchers.cover_search.edge_potentials import EdgePotentials, Potentials
from searchers.cover_search.layered_search import Budget, LayeredSearch
from searchers.cover_search.moves import Moves, make_moves
from searchers.cover_search.objective import Objective, make_objective
from searchers.cover_search.partial_covers import START, PartialCovers
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import best_value, candidate, covers, graph_of, problem_of, value
from tests.searchers.test_dijkstra_brute_force import problems, tangled


def moves_of(problem: SearchProblem) -> tuple[Moves, Objective]:
    found = list(problem.candidates)
    objective = make_objective(problem, found, problem.costs(found))
    return make_moves(problem.graph, objective), objective


def potentials_of(moves: Moves, sweeps: int) -> Potentials:
    potentials = EdgePotentials(moves)
    for sweep in range(sweeps):
        potentials.sweep(forwards=sweep % 2 == 0)
    return potentials.result()


def check_bound(problem: SearchProblem, sweeps: int) -> None:
    best = best_value(problem)
    if best is None:
        return
    moves, objective = moves_of(problem)
    found = potentials_of(moves, sweeps)
    assert objective.seconds(found.floor) <= best[2] + 1e-9
    assert all(slack >= 0 for slack in found.slack.values())


def check_ranks(problem: SearchProblem, sweeps: int) -> None:
    """Every cover, built move by move: ranks never fall and end no higher than what the cover costs."""
    moves, objective = moves_of(problem)
    partial = PartialCovers(moves)
    partial.tighten(potentials_of(moves, sweeps), 1 << 500)
    index = {c: i for i, c in enumerate(objective.candidates)}
    for cover in covers(problem):
        chosen = {index[c] for c in cover}
        position, state = 0, START
        while position < partial.size:
            steps = [s for s in partial.steps(position, state, math.inf, math.inf) if s[5].candidate in chosen]
            if not steps:
                break  # of two candidates of the same nodes and backend only one is a move
            assert len(steps) == 1 and steps[0][4] >= state[4]
            state, position = partial.state(position, state, steps[0]), steps[0][0]
        else:
            assert partial.bound + state[4] <= partial.floor + state[0] and not state[5]
            assert objective.seconds(partial.floor + state[0]) == pytest.approx(value(problem, cover)[2])


@settings(max_examples=100, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(1, 5))
def test_no_cover_is_below_the_bound(problem: SearchProblem, sweeps: int) -> None:
    check_bound(problem, sweeps)


@settings(max_examples=100, deadline=None)
@given(tangled(), st.integers(1, 5))
def test_no_cover_is_below_the_bound_where_candidates_form_cycles(problem: SearchProblem, sweeps: int) -> None:
    check_bound(problem, sweeps)


@settings(max_examples=60, deadline=None)
@given(problems(transitions=True), st.integers(1, 4))
def test_ranks_never_fall_and_never_exceed_the_cover(problem: SearchProblem, sweeps: int) -> None:
    check_ranks(problem, sweeps)


@settings(max_examples=60, deadline=None)
@given(tangled(), st.integers(1, 4))
def test_ranks_never_fall_where_candidates_form_cycles(problem: SearchProblem, sweeps: int) -> None:
    check_ranks(problem, sweeps)


@pytest.mark.parametrize("dear", [0.0, 50.0])
def test_two_values_from_one_partition_to_another_are_one_transition(dear: float) -> None:
    """x runs {0,1} and y {2}, which reads both: one transition of 3. With `dear` the pair of x is a bad choice."""
    graph = graph_of([[], [], [0, 1]])
    costs = {candidate(graph, "x", [0, 1]): 1.0 + dear, candidate(graph, "y", [2]): 1.0}
    costs |= {candidate(graph, "x", [node]): 2.0 for node in (0, 1)}
    problem = problem_of(graph, costs, {("x", "y"): 3.0})
    moves, objective = moves_of(problem)
    best = 5.0 if not dear else 11.0
    assert DijkstraSearcher().search(problem).cost.seconds == best
    assert objective.seconds(potentials_of(moves, 3).floor) == pytest.approx(best)


def chain(size: int, seed: int) -> SearchProblem:
    """Candidates of up to three nodes in a row, on three backends, with transitions that differ."""
    rng = random.Random(seed)
    graph = graph_of([[], *([i] for i in range(size - 1))])
    costs: dict[CandidatePartition, float] = {}
    for backend in "xyz":
        for start in range(size):
            for end in range(start + 1, min(size, start + 3) + 1):
                costs[candidate(graph, backend, range(start, end))] = rng.uniform(0.5, 1.5) * (end - start)
    return problem_of(graph, costs, {(a, b): rng.uniform(0.1, 0.4) for a in "xyz" for b in "xyz" if a != b})


@pytest.mark.parametrize("seed", range(3))
def test_on_a_chain_one_sweep_is_the_optimum(seed: int) -> None:
    problem = chain(40, seed)
    moves, objective = moves_of(problem)
    best = DijkstraSearcher().search(problem)
    assert best.gap == 0 and len({c.backend for c in best.partitions}) > 1
    assert objective.seconds(potentials_of(moves, 1).floor) == pytest.approx(best.cost.seconds)


def cells(size: int) -> SearchProblem:
    """NASNet-like cells on four backends, as in the benchmark of scaling."""
    graph = nasnet_like(size)
    transitions = {(a, b): Transition(TRANSITION_S) for a in BACKENDS for b in BACKENDS if a != b}
    found = enumerate_candidates(graph).candidates
    return SearchProblem(
        graph, found, CostTable(made_up_costs(graph)), transitions, {b: i for i, b in enumerate(BACKENDS)}
    )


def test_cells_are_proven_with_a_number_of_states_that_leaves_a_gap_without_potentials() -> None:
    moves = moves_of(cells(150))[0]
    tight = LayeredSearch(moves, Budget(deadline=math.inf, states=60_000, tighten=True)).run()
    plain = LayeredSearch(moves, Budget(deadline=math.inf, states=2 * tight.expanded)).run()
    assert tight.exact and tight.value == tight.lower_bound
    assert not plain.exact and plain.value is not None and plain.lower_bound is not None
    assert plain.lower_bound < plain.value
