"""The frontier of latency and error against brute force, with searchers of all kinds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.backends.base import Availability, Backend
from collage.cost.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.rules import PartitionRule, graph_rule
from collage.search import CostTable, Partitioning, Searcher, SearchProblem
from collage.search.frontier import Frontier, FrontierPoint, frontier
from collage.testing.problems import (
    butterfly,
    candidate,
    covers,
    graph_of,
    large_given,
    problem_of,
    random_given,
    shape,
    value,
    with_host,
)
from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.greedy import GreedySearcher
from tests.searchers import test_crossings

SEEDS = st.integers(0, 10**6)
BUDGETS = (0.0, 0.5, 1.0, 1.7, 2.3, 3.1, math.inf)
Errors = Mapping[CandidatePartition, float]


class Careless(Searcher):
    """Any cover that it comes across; proves nothing, and knows of nothing but costs."""

    def search(self, problem: SearchProblem) -> Partitioning:
        found = [cover for cover in itertools.islice(covers(problem), 3)]
        if not found:
            raise NoCoverError("none")
        return problem.partitioning(min(found, key=lambda cover: value(problem, cover)))


class Slow(Careless):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def search(self, problem: SearchProblem) -> Partitioning:
        self.asked += 1
        return super().search(problem)


class Joining(Backend):
    """Takes anything."""

    style = "graph"  # type: ignore[assignment]
    makes_blobs = False

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        return graph_rule(lambda node: True)


def errors_of(problem: SearchProblem, seed: int, disallowed: bool = False) -> Errors:
    """Few values, so that there are ties; of some candidates none; or not allowed."""
    rng = random.Random(seed)
    choices = [0.0, 0.0, 0.25, 1.0, 2.0, 3.0] + ([math.inf, math.nan] if disallowed else [])
    return {c: rng.choice(choices) for c in problem.candidates}


def all_covers(problem: SearchProblem, errors: Errors) -> list[tuple[float, float]]:
    """(squared error, seconds) of every cover, found by brute force; what is of unknown cost is free."""
    found = []
    for cover in covers(problem):
        squared_error = sum(errors[c] for c in cover if c.backend != HOST)
        if math.isfinite(squared_error):
            found.append((squared_error, value(problem, cover)[2]))
    return found


def fastest(everything: list[tuple[float, float]], max_error: float) -> float:
    return min((seconds for error, seconds in everything if error <= max_error**2 + 1e-9), default=math.inf)


def check(found: Frontier, everything: list[tuple[float, float]], unknown: bool = False) -> None:
    """What holds of every frontier, whoever searched."""
    for left, right in itertools.pairwise(found.points):
        assert left.squared_error < right.squared_error
        assert left.seconds > right.seconds or math.isnan(left.seconds)
    bounds = [found.bound(budget) for budget in BUDGETS]
    assert all(one >= other for one, other in itertools.pairwise(bounds))
    for budget, bound in zip(BUDGETS, bounds, strict=True):
        optimum, best = fastest(everything, budget), found.best(budget)
        assert bound <= optimum + 1e-9
        if best is None:
            assert found.gap(budget) == math.inf
        elif best.partitioning.cost.is_finite:
            assert best.squared_error <= budget**2 + 1e-6 and best.error == pytest.approx(math.sqrt(best.squared_error))
            assert best.seconds >= optimum - 1e-9
            assert any(math.isclose(best.seconds, s) and math.isclose(best.squared_error, e) for e, s in everything)
            assert bound <= 0 or found.gap(budget) == pytest.approx(best.seconds / bound - 1, abs=1e-9)
        else:
            assert unknown
    for price, least in found.duals:
        assert least <= min((seconds + price * error for error, seconds in everything), default=math.inf) + 1e-9


def check_exact(found: Frontier, everything: list[tuple[float, float]]) -> None:
    """What holds besides when everything was searched to the end."""
    check(found, everything)
    for budget in BUDGETS:
        best = found.best(budget)
        assert (math.inf if best is None else best.seconds) == pytest.approx(fastest(everything, budget))
        assert found.gap(budget) <= 1e-9 if best is not None else found.bound(budget) == math.inf
    for price, least in found.duals:
        assert least == pytest.approx(min(seconds + price * error for error, seconds in everything))
        assert any(point.seconds + price * point.squared_error == pytest.approx(least) for point in found.points)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_an_exact_searcher_finds_the_fastest_cover_within_every_budget(seed: int, disallowed: bool) -> None:
    problem = random_given(seed, size=6).problem()
    errors = errors_of(problem, seed, disallowed)
    found = frontier(DijkstraSearcher(), problem, errors.__getitem__, BUDGETS, {})
    check_exact(found, all_covers(problem, errors))


@pytest.mark.parametrize("made", [butterfly, with_host], ids=["butterfly", "host"])
def test_cycles_and_the_host_count_as_in_any_search(made: Callable[[], object]) -> None:
    for seed in range(12):
        problem = made().problem()  # type: ignore[attr-defined]
        errors = errors_of(problem, seed)
        check_exact(frontier(DijkstraSearcher(), problem, errors.__getitem__, BUDGETS, {}), all_covers(problem, errors))


def test_copies_between_devices_count_as_in_any_search() -> None:
    for seed in range(12):
        problem = test_crossings.random_problem(seed)
        errors = errors_of(problem, seed)
        found = frontier(DijkstraSearcher(), problem, errors.__getitem__, BUDGETS, {})
        for budget in BUDGETS:
            within = [
                problem.partitioning(cover).cost.seconds
                for cover in covers(problem)
                if sum(errors[c] for c in cover if c.backend != HOST) <= budget**2
            ]
            best = found.best(budget)
            assert (math.inf if best is None else best.seconds) == pytest.approx(min(within, default=math.inf))
            assert found.bound(budget) == pytest.approx(min(within, default=math.inf))


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_labels_close_gaps_between_errors_that_are_no_round_numbers(seed: int) -> None:
    rng = random.Random(seed)
    graph = graph_of([[i - 1] if i else [] for i in range(5)])
    costs = {candidate(graph, backend, [i]): rng.uniform(1, 3) for i in range(5) for backend in "xyz"}
    errors = {c: rng.uniform(1e-6, 1e-4) if c.backend != "x" else 0.0 for c in costs}
    problem = problem_of(graph, costs, {(a, b): 0.1 for a in "xyz" for b in "xyz" if a != b})
    limits = [rng.uniform(0, 3e-4) for _ in range(2)]
    found = frontier(DijkstraSearcher(), problem, errors.__getitem__, [math.sqrt(limit) for limit in limits], {})
    everything = all_covers(problem, errors)
    for limit in limits:
        best = found.best(math.sqrt(limit))
        assert best is not None
        assert best.seconds == pytest.approx(min(seconds for error, seconds in everything if error <= limit))
        assert found.gap(math.sqrt(limit)) <= 1e-9


@pytest.mark.parametrize(
    "searcher", [BeamSearcher(width=1), GreedySearcher(), Careless()], ids=["beam", "greedy", "careless"]
)
def test_a_searcher_that_is_not_exact_yields_no_false_bound(searcher: Searcher) -> None:
    for seed in range(25):
        problem = random_given(seed, size=6).problem()
        errors = errors_of(problem, seed, disallowed=seed % 2 == 0)
        try:
            found = frontier(searcher, problem, errors.__getitem__, BUDGETS, {})
        except CollageError:
            continue  # greed met a dead end
        check(found, all_covers(problem, errors))


def test_the_labels_of_the_bundled_searcher_help_one_that_has_none() -> None:
    for seed in range(15):
        problem = random_given(seed, size=5).problem()
        errors = errors_of(problem, seed)
        found = frontier(Careless(), problem, errors.__getitem__, BUDGETS, {})
        everything = all_covers(problem, errors)
        for budget in BUDGETS:
            best = found.best(budget)
            assert (math.inf if best is None else best.seconds) == pytest.approx(fastest(everything, budget))


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_what_is_of_unknown_cost_makes_no_bound(seed: int) -> None:
    problem = random_given(seed, size=6, unknown=True).problem()
    errors = errors_of(problem, seed)
    found = frontier(DijkstraSearcher(), problem, errors.__getitem__, BUDGETS, {})
    check(found, all_covers(problem, errors), unknown=True)


def test_what_is_not_costed_is_bounded_by_its_interval() -> None:
    """A lazy searcher leaves gaps; bounds hold if the intervals do, and covers are costed that could be better."""
    offered = costed = assumed = 0
    for seed in range(40):
        made = random_given(seed, size=6)
        true = made.problem()
        errors, rng = errors_of(true, seed), random.Random(seed)
        seconds = {c: true.cost(c).seconds for c in true.candidates}
        around = {c: (s * rng.uniform(0.5, 1), s * rng.uniform(1, 2)) for c, s in seconds.items() if s < math.inf}

        def intervals(
            asked: Sequence[CandidatePartition], around: Mapping[CandidatePartition, tuple[float, float]] = around
        ) -> list[tuple[float, float]]:
            return [around.get(c, (0.0, math.inf)) for c in asked]

        table = CostTable(true.costs, intervals=intervals)
        lazy = replace(true, cost_table=table)
        found = frontier(DijkstraSearcher(), lazy, errors.__getitem__, BUDGETS, {})
        check_exact(found, all_covers(true, errors))
        offered += len(true.candidates)
        costed += sum(lazy.known(c) is not None for c in lazy.candidates)
        assumed += found.assumes_intervals
    assert costed < 0.9 * offered and assumed


def test_costs_below_their_intervals_are_taken_off_the_bounds() -> None:
    """What was costed is known; all that was not is inside its interval here."""
    tight = held = 0
    for seed in range(30):
        true = random_given(seed, size=5).problem()
        errors = errors_of(true, seed)
        seconds = {c: true.cost(c).seconds for c in true.candidates}
        table = CostTable(true.costs, intervals=lambda asked: [(3.0, 5.0)] * len(asked))
        lazy = replace(true, cost_table=table)
        found = frontier(DijkstraSearcher(), lazy, errors.__getitem__, BUDGETS, {})
        inside = all(seconds[c] >= 3.0 for c in true.candidates if lazy.known(c) is None)
        if inside:
            check(found, all_covers(true, errors))
            tight += all(found.gap(budget) <= 1e-9 for budget in BUDGETS if found.best(budget) is not None)
            held += 1
    assert tight == held > 5


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_the_same_problem_gives_the_same_frontier_in_any_order(seed: int) -> None:
    made = random_given(seed, size=6)
    errors = errors_of(made.problem(), seed)
    one, other = (
        frontier(DijkstraSearcher(), made.problem(order), errors.__getitem__, BUDGETS, {}) for order in (1, 2)
    )
    assert [(shape(p.partitioning), p.squared_error) for p in one.points] == [
        (shape(p.partitioning), p.squared_error) for p in other.points
    ]
    assert (one.duals, one.proven) == (other.duals, other.proven)


@pytest.mark.parametrize("searcher", [DijkstraSearcher(), BeamSearcher(width=2)], ids=["dijkstra", "beam"])
def test_bounds_hold_for_the_unions_that_came_up(searcher: Searcher) -> None:
    """Each price may bring unions that are cheaper than what was proven before."""
    graph = graph_of([[], [0], [1], [2], [1]])
    backends = {name: Joining() for name in "xyz"}
    for seed in range(6):
        seen: dict[CandidatePartition, Cost] = {}

        def cost(c: CandidatePartition, seed: int = seed) -> Cost:
            rng = random.Random(f"{seed} {c.backend} {c.sub_graph.inside.bits}")
            return Cost(round(len(c.sub_graph.inside) ** 0.5 * rng.uniform(1, 3), 3))

        def estimate(asked: list[CandidatePartition], seen: dict[CandidatePartition, Cost] = seen) -> list[Cost]:
            seen.update((c, cost(c)) for c in asked)
            return [seen[c] for c in asked]

        def error(c: CandidatePartition) -> float:
            return float("xyz".index(c.backend) * len(c.sub_graph.inside))

        alone = CandidateSet(candidate(graph, name, [node]) for name in "xyz" for node in range(5))
        problem = SearchProblem(graph, alone, CostTable(estimate))  # type: ignore[arg-type]
        found = frontier(searcher, problem, error, BUDGETS, backends)
        assert len(seen) > len(alone)
        everything = all_covers(replace(problem, candidates=CandidateSet(seen)), {c: error(c) for c in seen})
        check(found, everything)
        assert max(found.gap(budget) for budget in BUDGETS) <= 1e-9


def test_without_time_there_are_the_ends_and_true_bounds() -> None:
    problem = random_given(3, size=6).problem()
    errors = errors_of(problem, 3)
    searcher = Slow()
    found = frontier(searcher, problem, errors.__getitem__, BUDGETS, {}, budget_s=0.0)
    assert searcher.asked <= 3
    check(found, all_covers(problem, errors))


def test_a_search_that_is_cut_says_how_far_from_the_best_it_may_be() -> None:
    made = large_given(size=32)
    problem = made.problem()
    errors = {c: random.Random(str(c)).choice((0.0, 0.3, 0.7)) for c in problem.candidates}
    problem.costs(list(problem.candidates))
    found = frontier(DijkstraSearcher(max_states=100), problem, errors.__getitem__, [1.0, 2.0], {})
    for budget in (1.0, 2.0):
        best = found.best(budget)
        assert best is not None and 0 < found.bound(budget) <= best.seconds
        assert 0 < found.gap(budget) < 1


def test_what_no_cover_meets_has_no_best_and_what_none_can_be_is_an_error() -> None:
    graph = graph_of([[], [0]])
    costs = {candidate(graph, "x", [0]): 1.0, candidate(graph, "x", [1]): 2.0}
    problem = problem_of(graph, costs)
    found = frontier(DijkstraSearcher(), problem, lambda c: 0.5, [0.9, 1.0], {})
    assert found.best(0.9) is None and found.bound(0.9) == math.inf
    best = found.best(1.0)
    assert best is not None and best.seconds == 3.0 and best.partitioning.lower_bound == 3.0 and found.gap(1.0) == 0.0
    nothing = frontier(DijkstraSearcher(), problem, lambda c: math.inf, [1.0, math.inf], {})
    assert nothing.points == () and nothing.best(math.inf) is None and nothing.bound(1.0) == math.inf
    invalid = problem_of(graph, dict.fromkeys(costs, Cost.invalid("refused")))
    with pytest.raises(NoCoverError, match="refused"):
        frontier(DijkstraSearcher(), invalid, lambda c: 0.0, [1.0], {})


@pytest.mark.parametrize("budget", [-0.1, math.nan])
def test_a_budget_that_is_none_is_refused(budget: float) -> None:
    problem = random_given(0).problem()
    with pytest.raises(ValueError, match="error budget"):
        frontier(DijkstraSearcher(), problem, lambda c: 0.0, [budget], {})
    with pytest.raises(ValueError, match="error budget"):
        Frontier().best(budget)


def test_an_error_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        frontier(DijkstraSearcher(), random_given(0).problem(), lambda c: -1.0, [1.0], {})


def test_frontiers_are_joined() -> None:
    problem = random_given(4, size=6).problem()
    errors = errors_of(problem, 4)
    one, other = (frontier(DijkstraSearcher(), problem, errors.__getitem__, [b], {}) for b in (0.5, 2.3))
    both = one.merged(other)
    for budget in BUDGETS:
        assert both.bound(budget) == max(one.bound(budget), other.bound(budget))
        found = [f.best(budget) for f in (one, other)]
        best = both.best(budget)
        assert best is None or best.seconds == min(point.seconds for point in found if point is not None)
    first = both.points[0]
    impossible = FrontierPoint(replace(first.partitioning, cost=Cost(0.0)), 0.0)
    assert both.with_points([impossible]).points == (impossible,)
    assert Frontier().best(1.0) is None and Frontier().bound(1.0) == 0.0 and Frontier().gap(1.0) == math.inf
