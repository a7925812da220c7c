"""SearcherConformance: the conditions that every searcher meets (docs/SEARCH.md), checked against brute force."""

from __future__ import annotations

import math
import pickle
import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import pytest

from collage.cost.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind
from collage.search import Partitioning, Searcher, SearchProblem
from collage.search.limit import Limit
from collage.testing import fresh
from collage.testing.parameters import ParameterisedConformance
from collage.testing.problems import (
    Given,
    best_value,
    butterfly,
    candidate,
    covers,
    graph_of,
    has_cycle,
    is_lower_bound,
    problem_of,
    random_given,
    shape,
    value,
    with_host,
)

_SEEDS = range(24)
_PUZZLES = range(100, 124)


class SearcherConformance(ParameterisedConformance):
    """Inherit, and define `make`.

    Attributes
    ----------
    exact
        Whether the searcher, given time, claims to find a best cover, ties included, wherever there is one; then it is
        held to that.
    budget_s, patience
        A search on a large problem with this budget has to end within `patience` times the budget.
    """

    exact: ClassVar[bool] = False
    budget_s: ClassVar[float] = 0.5
    patience: ClassVar[float] = 20.0

    @abstractmethod
    def make(self) -> Searcher:
        """A new searcher; all that a test makes are equal."""

    def answer(self, given: Given, *, order: int | None = None, seed: int = 0) -> Partitioning:
        """What a new searcher answers."""
        return self.make().search(given.problem(order, seed=seed))

    @pytest.mark.parametrize("number", _SEEDS)
    def test_finds_a_legal_cover_of_the_cost_it_states(self, number: int) -> None:
        given = random_given(number)
        problem, found = given.problem(), self.answer(given)
        check_legal(problem, found)
        assert found.cost.seconds == pytest.approx(value(problem, found.candidates)[2])

    @pytest.mark.parametrize("number", _SEEDS)
    def test_is_never_below_the_optimum_and_its_bound_is_one(self, number: int) -> None:
        given = random_given(number)
        problem, found = given.problem(), self.answer(given)
        best = best_value(problem)
        assert best is not None and found.cost.seconds >= best[2] - 1e-9
        assert is_lower_bound(problem, found.lower_bound), "no cover may cost less than the lower bound"
        assert found.lower_bound <= found.cost.seconds + 1e-9
        if self.exact:
            assert value(problem, found.candidates) == best, "an exact searcher finds a best cover, ties included"

    @pytest.mark.parametrize("number", _SEEDS)
    def test_a_cover_within_a_limit_keeps_it_and_the_bound_is_one(self, number: int) -> None:
        problem = random_given(number, size=6).problem()
        problem.costs(list(problem.candidates))
        rng = random.Random(number)
        used = {c: rng.choice((0.0, 1.0, 2.0)) for c in problem.candidates}
        answer = self.make().search_within(problem, Limit(used.__getitem__, 3.0, rng.choice((0.0, 0.5))))
        if answer is None:
            return  # it has no such search
        allowed = (cover for cover in covers(problem) if sum(used[c] for c in cover) <= 3.0)
        optimum = min((value(problem, cover)[2] for cover in allowed), default=math.inf)
        assert answer.lower_bound <= optimum + 1e-9
        if answer.partitioning is not None:
            chosen = answer.partitioning.candidates
            assert sum(used[c] for c in chosen) <= 3.0 and not has_cycle(problem.graph, chosen)
            assert answer.partitioning.cost.seconds >= optimum - 1e-9

    @pytest.mark.parametrize("number", _PUZZLES)
    def test_says_that_there_is_no_cover_exactly_when_there_is_none(self, number: int) -> None:
        """Where candidates hardly fit together. A heuristic that does not know gives up with another CollageError."""
        given = random_given(number, singles=False)
        problem = given.problem()
        there_is_one = next(covers(problem), None) is not None
        try:
            check_legal(problem, self.answer(given))
        except NoCoverError as error:
            assert not there_is_one, f"there is a cover: {error}"
        except CollageError as error:
            assert not self.exact, f"an exact searcher knows whether there is a cover: {error}"

    def test_a_node_that_nobody_takes_is_named(self) -> None:
        graph = graph_of([[], [0], [1]], ["relu", "my.sort", "relu"])
        problem = problem_of(graph, {candidate(graph, "x", [0]): 1.0, candidate(graph, "x", [2]): 1.0})
        with pytest.raises(NoCoverError, match=r"my\.sort.*1"):
            self.make().search(problem)

    def test_a_node_on_which_every_backend_fails_is_named(self) -> None:
        graph = graph_of([[], [0]], ["relu", "my.sort"])
        refused = {candidate(graph, "x", [1]): Cost.invalid("refused"), candidate(graph, "y", [0, 1]): Cost.invalid()}
        with pytest.raises(NoCoverError, match=r"my\.sort.*1"):
            self.make().search(problem_of(graph, {candidate(graph, "x", [0]): 1.0, **refused}))

    def test_halves_that_need_each_other_are_not_chosen_together(self) -> None:
        given = butterfly()
        found = self.answer(given)
        check_legal(given.problem(), found)
        assert not {("x", (0, 2)), ("y", (1, 3))} <= shape(found)

    def test_invalid_candidates_are_never_chosen(self) -> None:
        graph = graph_of([[], [0], [1]])
        costs: dict[CandidatePartition, Cost | float] = {candidate(graph, "x", [node]): 5.0 for node in range(3)}
        costs |= {candidate(graph, "y", nodes): Cost.invalid("wrong numbers") for nodes in ([0, 1, 2], [0, 1], [2])}
        found = self.make().search(problem_of(graph, costs, priorities={"y": 1, "x": 2}))
        assert shape(found) == {("x", (0,)), ("x", (1,)), ("x", (2,))} and found.cost.seconds == 15

    @pytest.mark.parametrize("number", _SEEDS[:12])
    def test_unknown_costs_are_taken_and_noted(self, number: int) -> None:
        given = random_given(number, unknown=True)
        problem, found = given.problem(), self.answer(given)
        check_legal(problem, found)
        assert is_lower_bound(problem, found.lower_bound)
        if any(problem.cost(c).is_unknown for c in found.candidates):
            assert found.cost.is_unknown
            assert any("unknown" in note.lower() for note in found.notes), "it says so in the notes"

    def test_where_nothing_is_known_the_declared_priority_decides(self) -> None:
        graph = graph_of([[], [0]])
        unknown = {candidate(graph, b, [n]): Cost.unknown("no record") for b in ("x", "y") for n in range(2)}
        found = self.make().search(problem_of(graph, unknown, priorities={"x": 2, "y": 1}))
        assert {c.backend for c in found.candidates} == {"y"} and found.cost.is_unknown
        assert any("unknown" in note.lower() for note in found.notes)

    def test_the_declared_priority_decides_a_tie(self) -> None:
        graph = graph_of([[]])
        tied = {candidate(graph, backend, [0]): 1.0 for backend in ("x", "y", "z")}
        found = self.make().search(problem_of(graph, tied, priorities={"x": 2, "y": 1, "z": 3}))
        assert shape(found) == {("y", (0,))}

    @pytest.mark.parametrize("number", _SEEDS[:12])
    def test_equal_problems_have_equal_answers(self, number: int) -> None:
        """Whatever Python's own random numbers are, and in whatever order the rules found the candidates."""
        given, state = random_given(number), random.getstate()
        try:
            random.seed(1)
            first = self.answer(given, seed=5)
            random.seed(2)
            assert self.answer(given, seed=5) == first
            assert self.answer(given, seed=5, order=number).candidates == first.candidates
        finally:
            random.setstate(state)

    def test_a_searcher_can_be_used_again(self) -> None:
        searcher, given = self.make(), random_given(3)
        first = searcher.search(given.problem())
        searcher.search(random_given(4).problem())
        assert searcher.search(given.problem()) == first

    def test_the_hash_seed_changes_nothing(self) -> None:
        """Needs a class that a fresh process can import."""
        answers = {fresh.run("collage.testing.search_process", ["random"], self.make(), seed) for seed in ("1", "2")}
        assert len(answers) == 1

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_any_seed_gives_a_legal_cover(self, seed: int) -> None:
        given = random_given(6)
        check_legal(given.problem(), self.answer(given, seed=seed))

    def test_ends_soon_after_its_budget(self) -> None:
        """A cover of a large problem, within `patience` budgets: a searcher that has not ended by then is killed."""
        limit = self.patience * self.budget_s
        arguments = ["large", str(self.budget_s), str(limit)]
        assert fresh.run("collage.testing.search_process", arguments, self.make()).strip() == "a cover"

    def test_a_budget_that_is_spent_already_is_no_hang(self) -> None:
        problem = random_given(5).problem(budget_s=0.0)
        try:
            found = self.make().search(problem)
        except NoCoverError as error:
            pytest.fail(f"there is a cover: {error}")
        except CollageError as error:
            assert "budget" in str(error)
        else:
            check_legal(problem, found)

    def test_a_pickled_searcher_gives_the_same_answer(self) -> None:
        searcher, given = self.make(), random_given(7)
        first = searcher.search(given.problem())
        assert pickle.loads(pickle.dumps(searcher)).search(given.problem()) == first

    @pytest.mark.parametrize("number", _SEEDS[:6])
    def test_the_problem_stays_as_it_is(self, number: int) -> None:
        given = random_given(number)
        problem = given.problem(budget_s=60.0, seed=9)
        candidates = list(problem.candidates)
        self.make().search(problem)
        assert problem.graph is given.graph and list(problem.candidates) == candidates
        assert dict(problem.transitions) == dict(given.problem().transitions)
        assert dict(problem.priorities) == dict(given.priorities)
        assert (problem.budget_s, problem.seed) == (60.0, 9)
        assert problem.costs(candidates) == given.problem().costs(candidates)

    def test_opaque_operators_and_the_hosts_nodes_are_covered(self) -> None:
        given = with_host()
        found = self.answer(given)
        assert shape(found) == {("x", (0,)), ("y", (1,)), (HOST, (2,)), (HOST, (3,)), ("x", (4,))}
        assert found.cost.seconds == 1 + 2 + 4 + 8 + 16, "x -> y, and y -> x through the host"
        assert [c.backend for c in found.partitions] == ["x", "y", "x"]

    def test_a_network_without_operators_has_an_empty_cover(self) -> None:
        graph = DataflowGraph.from_edges([("input", NodeKind.INPUT, [])])
        found = self.make().search(problem_of(graph, {}))
        assert found.candidates == () and found.cost.seconds == 0


def check_legal(problem: SearchProblem, found: Partitioning) -> None:
    """A cover by candidates of the problem that are not Invalid, acyclic, in an order in which they can run."""
    chosen: Sequence[CandidatePartition] = found.candidates
    offered = set(problem.candidates)
    assert all(c in offered for c in chosen), "only candidates of the problem"
    assert sorted(node for c in chosen for node in c.sub_graph.inside) == list(problem.nodes), "every node once"
    assert not has_cycle(problem.graph, chosen), "no partitions that need each other"
    assert not any(problem.cost(c).is_invalid for c in chosen), "nothing Invalid"
    done: set[int] = set()
    for c in chosen:
        needed = {n for n in c.sub_graph.inputs if n in problem.nodes}
        assert needed <= done, f"{c} comes before what it reads"
        done.update(c.sub_graph.inside)
    assert not math.isnan(found.lower_bound)
