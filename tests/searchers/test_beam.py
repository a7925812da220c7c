"""BeamSearcher: legal and with a true bound whatever the width; with an infinite one, DijkstraSearcher itself."""

from __future__ import annotations

import math
import pickle
import random
from dataclasses import replace
from importlib.metadata import entry_points

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.cost.cost import Cost
from collage.errors import NoCoverError
from collage.search import SearchProblem
from searchers.beam import BeamSearcher
from searchers.cover_search.layered_search import Budget, LayeredSearch
from searchers.cover_search.moves import make_moves
from searchers.cover_search.objective import make_objective
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import best_value, candidate, graph_of, is_lower_bound, problem_of, shape, value
from tests.searchers.test_dijkstra_brute_force import problems, tangled
from tests.searchers.test_dijkstra_ties import tie_heavy, wide

narrow = st.builds(BeamSearcher, width=st.integers(1, 3), look_ahead=st.integers(0, 2))


def check(problem: SearchProblem, searcher: BeamSearcher) -> None:
    """Legality itself is checked by `SearchProblem.partitioning`, which raises when a cover is none."""
    best = best_value(problem)
    if best is None:
        with pytest.raises(NoCoverError, match=r"node \d+"):
            searcher.search(problem)
        return
    found = searcher.search(problem)
    mine = value(problem, found.candidates)
    assert mine >= best and is_lower_bound(problem, found.lower_bound)
    if found.gap == 0 and not found.notes:
        assert mine == best, "what is not said to be cut is optimal, ties included"


@settings(max_examples=150, deadline=None)
@given(problems(unknown=True, transitions=True), narrow)
def test_a_narrow_beam_is_legal_and_its_bound_is_true(problem: SearchProblem, searcher: BeamSearcher) -> None:
    check(problem, searcher)


@settings(max_examples=150, deadline=None)
@given(tangled(), narrow)
def test_a_narrow_beam_finds_its_way_out_of_dead_ends(problem: SearchProblem, searcher: BeamSearcher) -> None:
    check(problem, searcher)


@settings(max_examples=100, deadline=None)
@given(tangled(), st.integers(1, 3))
def test_a_dead_end_is_left_even_when_the_budget_is_spent(problem: SearchProblem, width: int) -> None:
    check(problem, BeamSearcher(width=width, max_states=0, time_limit_s=0))


@settings(max_examples=100, deadline=None)
@given(tangled(), st.integers(0, 2))
def test_where_every_node_can_stand_alone_no_beam_comes_to_a_dead_end(problem: SearchProblem, look_ahead: int) -> None:
    """Cheap partitions that wait for each other tempt the beam; what closes a cycle for good is dropped at once."""
    costs = {c: problem.cost(c) for c in problem.candidates}
    costs |= {candidate(problem.graph, "w", [node]): Cost(50.0) for node in problem.nodes}
    alone = problem_of(problem.graph, costs, problem.transitions)
    found = list(alone.candidates)
    moves = make_moves(alone.graph, make_objective(alone, found, alone.costs(found)))
    outcome = LayeredSearch(moves, Budget(deadline=math.inf, states=1 << 62, width=1, look_ahead=look_ahead)).run()
    assert outcome.value is not None and outcome.width == 1


@settings(max_examples=150, deadline=None)
@given(problems(unknown=True, transitions=True))
def test_an_infinite_beam_is_dijkstra_in_everything(problem: SearchProblem) -> None:
    try:
        expected = DijkstraSearcher().search(problem)
    except NoCoverError as error:
        with pytest.raises(NoCoverError) as mine:
            BeamSearcher(width=None).search(problem)
        assert str(mine.value) == str(error)
        return
    found = BeamSearcher(width=None, look_ahead=2).search(problem)
    assert found.candidates == expected.candidates and found.notes == expected.notes
    assert str(found.cost) == str(expected.cost) and found.lower_bound == expected.lower_bound


@pytest.mark.parametrize("states", [300, 3_000])
def test_an_infinite_beam_is_dijkstra_also_when_the_budget_is_spent(states: int) -> None:
    problem = wide(6, 7)
    found = BeamSearcher(width=None, max_states=states, time_limit_s=None).search(problem)
    assert found == DijkstraSearcher(max_states=states, time_limit_s=None).search(problem) and found.gap > 0


def test_a_beam_that_is_never_full_proves_the_optimum_and_ties_go_as_with_dijkstra() -> None:
    problem = tie_heavy()
    found = BeamSearcher(width=1024).search(problem)
    assert found == DijkstraSearcher().search(problem) and found.gap == 0 and not found.notes


@pytest.mark.parametrize("look_ahead", [0, 1])
def test_a_wider_beam_is_never_worse_and_proves_no_less(look_ahead: int) -> None:
    """The passes of the narrower one are the first passes of the wider one."""
    found = [BeamSearcher(width, look_ahead, time_limit_s=None).search(wide(6, 5)) for width in (16, 128)]
    assert found[0].cost.seconds >= found[1].cost.seconds and found[0].lower_bound <= found[1].lower_bound
    assert found[0].gap > 0 and "kept the best 16 " in found[0].notes[-1] and "at most" in found[0].notes[-1]


def test_looking_ahead_sees_the_transition_that_the_bound_of_the_rest_does_not() -> None:
    """x is cheaper for node 0, but node 1 is y's, and handing over costs more than is saved."""
    graph = graph_of([[], [0]])
    costs = {candidate(graph, b, [node]): cost for b, node, cost in (("x", 0, 1.0), ("y", 0, 1.1), ("y", 1, 1.0))}
    problem = problem_of(graph, costs, {("x", "y"): 0.5})
    found = list(problem.candidates)
    objective = make_objective(problem, found, problem.costs(found))
    moves = make_moves(problem.graph, objective)
    blind, sighted = (
        LayeredSearch(moves, Budget(deadline=math.inf, states=1 << 62, width=1, look_ahead=steps)).run()
        for steps in (0, 1)
    )
    assert blind.value is not None and objective.seconds(blind.value) == 2.5 and not blind.exact
    assert sighted.value is not None and objective.seconds(sighted.value) == pytest.approx(2.1) and sighted.exact


def test_the_bound_made_tighter_after_the_first_pass_sees_the_transition_too() -> None:
    graph = graph_of([[], [0]])
    costs = {candidate(graph, b, [node]): cost for b, node, cost in (("x", 0, 1.0), ("y", 0, 1.1), ("y", 1, 1.0))}
    found = BeamSearcher(width=1).search(problem_of(graph, costs, {("x", "y"): 0.5}))
    assert shape(found) == {("y", (0,)), ("y", (1,))} and found.gap == 0


@pytest.mark.parametrize("look_ahead", [0, 1])
def test_a_dead_end_is_no_failure(look_ahead: int) -> None:
    """A beam of one state takes {0} and is stuck: only {0,2} with {1} covers the graph."""
    graph = graph_of([[], [], [0, 1]])
    costs = {candidate(graph, "x", nodes): float(len(nodes)) for nodes in ([0], [0, 2], [1])}
    found = BeamSearcher(width=1, look_ahead=look_ahead, max_states=1).search(problem_of(graph, costs))
    assert shape(found) == {("x", (0, 2)), ("x", (1,))} and found.cost.seconds == 3


def test_the_order_of_the_candidates_does_not_matter() -> None:
    searcher = BeamSearcher(width=2, look_ahead=1)
    expected = searcher.search(tie_heavy())
    for seed in range(5):
        found = searcher.search(tie_heavy(random.Random(seed)))
        assert shape(found) == shape(expected) and found.lower_bound == expected.lower_bound


def test_32_branches_side_by_side_end_within_the_budget_with_a_proven_gap() -> None:
    problem = wide(32, 3)
    found = BeamSearcher(width=64, max_states=2_000, time_limit_s=None).search(problem)
    assert 0 < found.lower_bound < found.cost.seconds and 0 < found.gap < 0.2
    assert "at most" in found.notes[-1]
    hurried = BeamSearcher().search(replace(problem, budget_s=0.0))
    assert hurried.gap > 0 and "a greater budget" in hurried.notes[-1]


@pytest.mark.parametrize("searcher", [BeamSearcher(width=0), BeamSearcher(look_ahead=-1)])
def test_parameters_out_of_range_are_refused_by_name(searcher: BeamSearcher) -> None:
    with pytest.raises(ValueError, match=r"`width` must be at least 1, or None, and `look_ahead` at least 0"):
        searcher.search(tie_heavy())


def test_parameters_are_stored_shown_and_pickled_and_the_plug_in_is_registered() -> None:
    searcher = BeamSearcher(width=7, look_ahead=1)
    assert repr(searcher) == "BeamSearcher(width=7, look_ahead=1, time_limit_s=60.0, max_states=None)"
    assert pickle.loads(pickle.dumps(searcher)).get_params() == searcher.get_params()
    assert entry_points(group="collage.searchers")["beam"].load() is BeamSearcher
