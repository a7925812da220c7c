"""DijkstraSearcher against brute force: on random graphs and costs it finds a best cover or says there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import HOST
from collage.search import SearchProblem
from searchers.cover_search import layered_search
from searchers.dijkstra import DijkstraSearcher
from tests.searchers.problems import best_value, candidate, graph_of, is_lower_bound, problem_of, value

BACKENDS = ("x", "y", "z")


@st.composite
def transitions_between(draw: Any, pairs: list[tuple[str, str]], most: int = 4) -> dict[tuple[str, str], Transition]:
    """With a cost of bytes, or without."""
    rates = st.sampled_from((0.0, 0.5, 2.0)) if draw(st.booleans()) else st.just(0.0)
    return {pair: Transition(float(draw(st.integers(0, most))), draw(rates)) for pair in pairs}


@st.composite
def problems(draw: Any, unknown: bool = False, transitions: bool = False, singles: bool = False) -> SearchProblem:
    size = draw(st.integers(1, 10))
    inputs = [sorted(draw(st.sets(st.integers(0, max(0, i - 1)), max_size=3))) if i else [] for i in range(size)]
    sizes = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    graph = graph_of(inputs, sizes=sizes)
    values = [st.integers(0, 6).map(float), st.just(Cost.invalid("refused"))]
    cost = st.one_of(*values, st.just(Cost.unknown())) if unknown else st.one_of(*values)
    backends = BACKENDS[: draw(st.integers(1, 3))]
    chosen = st.tuples(st.sampled_from(backends), st.frozensets(st.integers(0, size - 1), min_size=1, max_size=4))
    keys = dict.fromkeys(draw(st.lists(chosen, max_size=24)))
    costs = {candidate(graph, backend, nodes): draw(cost) for backend, nodes in keys}
    for node in range(size):
        if singles or draw(st.integers(0, 3)):
            home = draw(st.sampled_from((*backends, HOST)))
            costs[candidate(graph, home, [node])] = draw(st.integers(2, 9).map(float) if singles else cost)
    between = [(a, b) for a in backends for b in backends if a != b]
    paid = draw(transitions_between(between)) if transitions else {}
    priorities = {backend: draw(st.integers(1, 3)) for backend in backends}
    return problem_of(graph, costs, paid, priorities)


@st.composite
def tangled(draw: Any) -> SearchProblem:
    """Cheap candidates that cover the graph together and often depend on each other in a cycle; dear single nodes."""
    size = draw(st.integers(4, 10))
    inputs = [sorted(draw(st.sets(st.integers(max(0, i - 4), i - 1), max_size=2))) if i else [] for i in range(size)]
    graph = graph_of(inputs, sizes=draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    costs = {}
    for backend in BACKENDS[: draw(st.integers(1, 2))]:
        groups = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
        for group in set(groups):
            nodes = [node for node in range(size) if groups[node] == group]
            costs[candidate(graph, backend, nodes)] = float(draw(st.integers(0, 3)))
    for node in range(size):
        if draw(st.booleans()):
            home = draw(st.sampled_from(("z", "z", HOST)))
            costs[candidate(graph, home, [node])] = float(draw(st.integers(2, 6)))
    transitions = draw(transitions_between([(a, b) for a in BACKENDS for b in BACKENDS if a != b], 2))
    return problem_of(graph, costs, transitions if draw(st.booleans()) else {})


def check(problem: SearchProblem) -> None:
    expected = best_value(problem)
    if expected is None:
        with pytest.raises(NoCoverError, match=r"node \d+"):
            DijkstraSearcher().search(problem)
        return
    found = DijkstraSearcher().search(problem)
    assert value(problem, found.candidates) == expected
    assert is_lower_bound(problem, found.lower_bound)
    if not any(problem.cost(c).is_unknown for c in problem.candidates):
        assert found.lower_bound == found.cost.seconds and found.gap == 0


@settings(max_examples=200, deadline=None)
@given(problems())
def test_costs_with_invalid(problem: SearchProblem) -> None:
    check(problem)


@settings(max_examples=200, deadline=None)
@given(problems(transitions=True))
def test_transitions(problem: SearchProblem) -> None:
    check(problem)


@settings(max_examples=500, deadline=None)
@given(tangled())
def test_cheap_candidates_that_form_cycles(problem: SearchProblem) -> None:
    check(problem)


@settings(max_examples=150, deadline=None)
@given(problems(unknown=True, transitions=True))
def test_unknown_costs_and_transitions(problem: SearchProblem) -> None:
    check(problem)


@settings(max_examples=150, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(1, 3))
def test_narrow_passes_that_cut_states_lose_nothing(problem: SearchProblem, width: int) -> None:
    """With layers this narrow nearly every early pass is cut, and the bound it proves has to hold."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered_search, "_WIDTHS", (width, width + 1, None))
        check(problem)


@settings(max_examples=150, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(0, 30))
def test_a_spent_budget_gives_a_legal_cover_and_a_true_bound(problem: SearchProblem, states: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered_search, "_WIDTHS", (1, 2, None))
        try:
            found = DijkstraSearcher(max_states=states).search(problem)
        except CollageError as error:
            assert "budget was spent" in str(error)
            return
    best = best_value(problem)
    assert best is not None and value(problem, found.candidates) >= best
    assert found.lower_bound <= best[2] + 1e-9
    if found.notes:
        assert "budget was spent" in found.notes[-1]
    else:
        assert value(problem, found.candidates) == best
