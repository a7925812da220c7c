"""The searchers of this repository conform, and searchers that are wrong are found out."""

from __future__ import annotations

import pytest

from collage.search import Searcher
from collage.testing import SearcherConformance
from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.evolutionary import EvolutionarySearcher
from searchers.greedy import GreedySearcher
from tests.collage.testing import broken_searchers as broken
from tests.collage.testing.running import failure


class TestDijkstra(SearcherConformance):
    exact = True

    def make(self) -> Searcher:
        return DijkstraSearcher()


class TestBeam(SearcherConformance):
    def make(self) -> Searcher:
        return BeamSearcher()


class TestEvolutionary(SearcherConformance):
    def make(self) -> Searcher:
        return EvolutionarySearcher()


class TestGreedy(SearcherConformance):
    def make(self) -> Searcher:
        return GreedySearcher()


BROKEN: list[tuple[type[Searcher], str]] = [
    (broken.TakesCycles, "test_halves_that_need_each_other_are_not_chosen_together"),
    (broken.TakesCycles, "test_finds_a_legal_cover_of_the_cost_it_states"),
    (broken.FollowsHashes, "test_the_hash_seed_changes_nothing"),
    (broken.FollowsOrder, "test_equal_problems_have_equal_answers"),
    (broken.FollowsOrder, "test_the_declared_priority_decides_a_tie"),
    (broken.ThrowsDice, "test_equal_problems_have_equal_answers"),
    (broken.TakesInvalid, "test_invalid_candidates_are_never_chosen"),
    (broken.LeavesNodesOut, "test_finds_a_legal_cover_of_the_cost_it_states"),
    (broken.RunsBackwards, "test_finds_a_legal_cover_of_the_cost_it_states"),
    (broken.ForgetsTransitions, "test_finds_a_legal_cover_of_the_cost_it_states"),
    (broken.ForgetsTransitions, "test_opaque_operators_and_the_hosts_nodes_are_covered"),
    (broken.ForgetsTransitions, "test_is_never_below_the_optimum_and_its_bound_is_one"),
    (broken.BoastsOfItsBound, "test_is_never_below_the_optimum_and_its_bound_is_one"),
    (broken.SilentOnUnknown, "test_unknown_costs_are_taken_and_noted"),
    (broken.SilentOnUnknown, "test_where_nothing_is_known_the_declared_priority_decides"),
    (broken.Greedy, "test_where_nothing_is_known_the_declared_priority_decides"),
    (broken.DeniesCovers, "test_says_that_there_is_no_cover_exactly_when_there_is_none"),
    (broken.DeniesCovers, "test_a_budget_that_is_spent_already_is_no_hang"),
    (broken.NamesNobody, "test_a_node_that_nobody_takes_is_named"),
    (broken.NamesNobody, "test_a_node_on_which_every_backend_fails_is_named"),
    (broken.Hangs, "test_ends_soon_after_its_budget"),
    (broken.ChangesTheProblem, "test_the_problem_stays_as_it_is"),
    (broken.RemembersTheLast, "test_a_searcher_can_be_used_again"),
    (broken.RemembersTheLast, "test_a_pickled_searcher_gives_the_same_answer"),
    (broken.HoldsALambda, "test_can_be_pickled"),
    (broken.HoldsALambda, "test_the_constructor_only_stores_its_parameters"),
    (broken.ChangesItsParameter, "test_the_constructor_only_stores_its_parameters"),
    (broken.TakesAnything, "test_get_params_gives_the_constructors_parameters"),
]


@pytest.mark.parametrize(("cls", "test"), BROKEN, ids=[f"{cls.__name__}-{test[5:40]}" for cls, test in BROKEN])
def test_a_searcher_that_is_wrong_fails(cls: type[Searcher], test: str) -> None:
    assert failure(_suite(cls), test) is not None


def test_a_heuristic_that_is_right_passes_what_it_should() -> None:
    """What fails above fails for its one defect, and not because the tests always fail."""
    suite = _suite(broken.Greedy)
    for test in sorted({test for cls, test in BROKEN if cls is not broken.Greedy}):
        if "unknown" not in test and "nothing_is_known" not in test and "exactly_when" not in test:
            assert failure(suite, test) is None, test


def test_a_heuristic_may_not_claim_to_be_exact() -> None:
    suite = _suite(broken.Greedy)
    suite.exact = True
    assert failure(suite, "test_is_never_below_the_optimum_and_its_bound_is_one") is not None


def _suite(cls: type[Searcher]) -> SearcherConformance:
    class Suite(SearcherConformance):
        exact = False
        budget_s, patience = 0.1, 20.0

        def make(self) -> Searcher:
            return cls()

    return Suite()
