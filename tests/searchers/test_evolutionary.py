"""EvolutionarySearcher: what it answers, given end-to-end latencies that additive costs do not foresee."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage import plugins
from collage.cost.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import CandidatePartition
from collage.search import LatencyTable, Partitioning, Searcher, SearchProblem
from searchers.dijkstra import DijkstraSearcher
from searchers.evolutionary import EvolutionarySearcher
from tests.searchers.problems import candidate, covers, graph_of, problem_of, shape, value
from tests.searchers.test_dijkstra_brute_force import problems
from tests.searchers.test_dijkstra_ties import wide

Latency = Callable[[Partitioning], Cost]


def run_by(problem: SearchProblem, latency: Latency) -> list[list[Partitioning]]:
    """Give the problem end-to-end latencies; the batches in which they are asked for."""
    batches: list[list[Partitioning]] = []

    def measure(partitionings: Sequence[Partitioning]) -> list[Cost]:
        batches.append(list(partitionings))
        return [latency(p) for p in partitionings]

    problem.latency_table.measure = measure
    return batches


def arbitrary(seed: int, failing: float) -> Latency:
    """A latency that has nothing to do with costs; a share of all placements fails."""

    def latency(partitioning: Partitioning) -> Cost:
        rng = random.Random(f"{seed} {sorted(map(str, partitioning.candidates))}")
        return Cost.invalid("made to fail") if rng.random() < failing else Cost(rng.uniform(1.0, 2.0))

    return latency


def chain(size: int, per_node: dict[str, float]) -> SearchProblem:
    """One candidate per node and per backend, all nodes alike."""
    graph = graph_of([[], *([i] for i in range(size - 1))])
    return problem_of(graph, {candidate(graph, b, [i]): cost for b, cost in per_node.items() for i in range(size)})


def misled() -> SearchProblem:
    """By cost x is best everywhere. End to end x is slow on the first half, y on the second."""
    problem = chain(8, {"x": 1.0, "y": 1.1})
    slow = {"x": range(0, 4), "y": range(4, 8)}
    run_by(
        problem, lambda p: Cost(sum(2.0 if c.sub_graph.inside.first in slow[c.backend] else 1.0 for c in p.candidates))
    )
    return problem


def quick(**changes: object) -> EvolutionarySearcher:
    return EvolutionarySearcher(**{"population": 12, "generations": 6, "time_limit_s": None} | changes)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(0, 9), st.sampled_from((0.0, 0.3)))
def test_legal_never_below_the_best_cover_and_never_above_the_seeds(
    problem: SearchProblem, seed: int, failing: float
) -> None:
    latency = arbitrary(seed, failing)
    batches = run_by(problem, latency)
    found = quick(patience=3).search(problem)
    legal = {frozenset(cover) for cover in covers(problem)}
    assert frozenset(found.candidates) in legal
    assert all(frozenset(p.candidates) in legal for batch in batches for p in batch)
    ran = [latency(p) for p in batches[0]]
    usable = [cost.seconds for cost in ran if cost.is_finite]
    if usable:
        mine = latency(found).seconds
        assert mine <= min(usable) * 1.02
        every = [latency(problem.partitioning(cover)) for cover in legal]
        assert mine >= min(cost.seconds for cost in every if cost.is_finite)


@settings(max_examples=15, deadline=None)
@given(problems(transitions=True, singles=True), st.integers(0, 9))
def test_the_same_latencies_and_seed_give_the_same_answer(problem: SearchProblem, seed: int) -> None:
    answers = []
    for _ in range(2):
        again = replace(problem, latency_table=LatencyTable(), seed=seed)
        run_by(again, arbitrary(seed, 0.2))
        answers.append(quick(patience=3).search(again))
    assert answers[0] == answers[1]


@settings(max_examples=30, deadline=None)
@given(problems())
def test_without_a_cover_it_says_what_dijkstra_says(problem: SearchProblem) -> None:
    run_by(problem, lambda p: Cost(1.0))
    try:
        expected = DijkstraSearcher().search(problem)
    except NoCoverError as error:
        with pytest.raises(NoCoverError, match=r"node \d+") as raised:
            quick().search(problem)
        assert str(raised.value) == str(error)
    else:
        assert quick(generations=1).search(problem).candidates == expected.candidates, "all latencies tie"


def test_it_finds_the_placement_that_additive_costs_hide_and_no_seed_is() -> None:
    problem = misled()
    found = EvolutionarySearcher(time_limit_s=None, measured_per_generation=20).search(problem)
    assert {(c.backend, c.sub_graph.inside.first) for c in found.candidates} == {
        *(("y", i) for i in range(4)),
        *(("x", i) for i in range(4, 8)),
    }
    assert problem.latency(found).seconds == 8.0
    assert problem.latency(DijkstraSearcher().search(problem)).seconds == 12.0
    notes = " | ".join(found.notes)
    assert "-33.3%" in notes and "4 nodes from x to y: {0..3}" in notes
    assert "brought no improvement" in notes and "memo hits" in notes


def test_a_gain_within_two_percent_leaves_dijkstras_cover() -> None:
    for gain, expected in ((0.01, "x"), (0.05, "y")):
        problem = chain(1, {"x": 1.0, "y": 3.0})
        run_by(problem, lambda p, gain=gain: Cost(1.0 - gain * (p.candidates[0].backend == "y")))
        found = quick().search(problem)
        assert [c.backend for c in found.candidates] == [expected]
        assert any("is a tie" in note for note in found.notes) == (expected == "x")


def test_intervals_that_overlap_leave_dijkstras_cover() -> None:
    problem = chain(1, {"x": 1.0, "y": 3.0})
    run_by(problem, lambda p: Cost(0.9 if p.candidates[0].backend == "y" else 1.0, spread=0.06, samples=20))
    assert [c.backend for c in quick().search(problem).candidates] == ["x"]


def test_a_placement_that_fails_is_never_the_answer() -> None:
    problem = chain(4, {"x": 1.0, "y": 1.1})
    run_by(problem, lambda p: Cost.invalid("x crashes") if any(c.backend == "x" for c in p.candidates) else Cost(9.0))
    found = quick().search(problem)
    assert {c.backend for c in found.candidates} == {"y"}
    assert any("failed; the first: x crashes" in note for note in found.notes)


def test_when_nothing_runs_the_answer_is_dijkstras_and_the_notes_say_so() -> None:
    problem = chain(4, {"x": 1.0, "y": 1.1})
    run_by(problem, lambda p: Cost.invalid("no"))
    found = quick().search(problem)
    assert {c.backend for c in found.candidates} == {"x"}
    assert any("not one placement ran" in note for note in found.notes)


def test_costs_are_asked_for_in_one_batch_and_each_placement_runs_once() -> None:
    problem = misled()
    estimate, asked = problem.cost_table.estimate, []
    problem.cost_table.estimate = lambda candidates: (asked.append(len(candidates)), estimate(candidates))[1]
    batches = run_by(problem, arbitrary(1, 0.2))
    quick(measured_per_generation=4).search(problem)
    assert asked == [len(problem.candidates)]
    ran = [p.candidates for batch in batches for p in batch]
    assert len(ran) == len(set(ran)) and all(len(batch) <= 4 for batch in batches[1:])
    assert len(batches) <= 1 + 6, "the seeds, then one batch per generation"


def test_the_seeds_are_dijkstras_each_backend_alone_and_distinct_covers_in_one_batch() -> None:
    problem = chain(5, {"x": 1.0, "y": 1.1, "z": 5.0})
    batches = run_by(problem, lambda p: Cost(1.0))
    quick(distinct_covers=2, generations=0).search(problem)
    [seeds] = batches
    assert {c.backend for c in seeds[0].candidates} == {"x"}, "the incumbent comes first: it is what others tie with"
    alone = [{c.backend for c in p.candidates} for p in seeds if len({c.backend for c in p.candidates}) == 1]
    assert alone == [{"x"}, {"y"}, {"z"}]
    mixed = [p for p in seeds if len({c.backend for c in p.candidates}) > 1]
    assert len(mixed) == 2 and all(p.cost.seconds == pytest.approx(5.1) for p in mixed)


def test_the_incumbent_takes_part_in_every_question() -> None:
    problem = misled()
    ask, questions = problem.latency_table.latencies, []
    problem.latency_table.latencies = lambda asked: (questions.append(list(asked)), ask(asked))[1]  # type: ignore[method-assign]
    quick().search(problem)
    assert len(questions) > 1
    assert all(question[0].candidates == questions[0][0].candidates for question in questions)


def test_the_cheapest_offspring_are_run_first_and_the_rest_counted() -> None:
    problem = chain(6, {"x": 1.0, "y": 1.5})
    batches = run_by(problem, lambda p: Cost(1.0))
    found = quick(measured_per_generation=1, generations=2, gene_mutation=0.3, population=40).search(problem)
    assert [len(batch) for batch in batches[1:]] == [1, 1]
    assert any("offspring not measured" in note and " 0 offspring" not in note for note in found.notes)
    costs = [batch[0].cost.seconds for batch in batches[1:]]
    assert max(costs) <= 8.0, "at most four of six nodes on the dearer backend"


def test_no_time_means_seeds_only_and_the_notes_say_so() -> None:
    problem = misled()
    found = quick(time_limit_s=0.0).search(problem)
    assert any("0 generations" in note and "its time was up" in note for note in found.notes)
    problem = replace(misled(), budget_s=0.0)
    assert any("its time was up" in note for note in quick().search(problem).notes)


def lucky(truth: dict[str, float], luck: dict[str, float]) -> tuple[SearchProblem, list[list[Partitioning]]]:
    """One node, three backends, dearer in their order. Lucky at first; run once more they take what they take."""
    problem = chain(1, {name: 1.0 + i for i, name in enumerate(truth)})
    run_by(problem, lambda p: Cost(luck[p.candidates[0].backend]))
    finals: list[list[Partitioning]] = []

    def again(partitionings: Sequence[Partitioning]) -> list[Cost]:
        finals.append(list(partitionings))
        return [Cost(truth[p.candidates[0].backend]) for p in partitionings]

    problem.latency_table.remeasure = again
    return problem, finals


def test_a_placement_that_was_only_lucky_loses_the_final() -> None:
    problem, finals = lucky({"x": 1.0, "y": 1.2, "z": 0.9}, luck={"x": 1.0, "y": 0.5, "z": 0.9})
    found = quick().search(problem)
    assert [c.backend for c in found.candidates] == ["z"]
    assert [p.candidates[0].backend for p in finals[0]] == ["x", "y", "z"], "Dijkstra's first, then the quickest"
    assert len(finals) == 1 and any("in a final of 3: end to end 900 ms" in note for note in found.notes)


def test_who_does_not_beat_dijkstra_in_the_final_is_not_the_answer() -> None:
    problem, _ = lucky({"x": 1.0, "y": 1.2, "z": 0.99}, luck={"x": 1.0, "y": 0.5, "z": 0.9})
    assert [c.backend for c in quick().search(problem).candidates] == ["x"], "1% is a tie"


def test_there_is_no_final_when_dijkstras_cover_is_the_quickest() -> None:
    problem, finals = lucky({"x": 1.0, "y": 1.2, "z": 0.9}, luck={"x": 1.0, "y": 1.5, "z": 1.9})
    assert [c.backend for c in quick().search(problem).candidates] == ["x"] and not finals


def ten_seconds_each(monkeypatch: pytest.MonkeyPatch) -> Latency:
    """Runs a placement, which takes ten seconds of a clock of its own, the evolution's."""
    now = [0.0]
    monkeypatch.setattr("searchers.evolution.fitness.time.monotonic", lambda: now[0])

    def run(_: Partitioning) -> Cost:
        now[0] += 10.0
        return Cost(1.0)

    return run


def test_time_for_the_final_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a final to come, a minute before the limit is too late to begin."""
    problem, slow = chain(6, {"x": 1.0, "y": 1.5}), ten_seconds_each(monkeypatch)
    batches = run_by(problem, slow)
    problem.latency_table.remeasure = lambda asked: [slow(p) for p in asked]
    quick(time_limit_s=10.0 * 5 + 59.0, population=40, gene_mutation=0.3).search(problem)
    assert len(batches) == 1, "the seeds only"


def test_time_that_is_left_bounds_how_many_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the seeds 25 s are left."""
    problem = chain(6, {"x": 1.0, "y": 1.5})
    batches = run_by(problem, ten_seconds_each(monkeypatch))
    limit = 10.0 * 5 + 29.0
    quick(time_limit_s=limit, population=40, gene_mutation=0.3).search(problem)
    assert len(batches[0]) == 5, "Dijkstra's and x alone are one, y alone, three distinct covers"
    assert sum(map(len, batches[1:])) <= 3


def test_without_hardware_dijkstras_proven_cover_is_the_answer_at_once() -> None:
    problem = chain(6, {"x": 1.0, "y": 1.5})
    found = EvolutionarySearcher().search(problem)
    assert found.candidates == DijkstraSearcher().search(problem).candidates and found.gap == 0
    assert "without end-to-end measurement" in found.notes[-1]


def test_without_hardware_fitness_is_the_additive_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Dijkstra that gave up early leaves something to win."""
    monkeypatch.setattr("searchers.evolutionary.DijkstraSearcher", lambda: DijkstraSearcher(max_states=1))
    problem = wide(4, 5)
    given_up = DijkstraSearcher(max_states=1).search(problem)
    found = quick(generations=3).search(problem)
    assert given_up.gap > 0
    assert value(problem, found.candidates) <= value(problem, given_up.candidates)
    assert found.lower_bound <= found.cost.seconds
    assert any("by additive cost, as the problem has no end-to-end measurement" in note for note in found.notes)


def test_unknown_costs_are_ordered_as_dijkstra_orders_them() -> None:
    graph = graph_of([[], [0]])
    costs: dict[CandidatePartition, Cost | float] = {
        candidate(graph, backend, [node]): Cost.unknown("not measured") for backend in "xy" for node in (0, 1)
    }
    problem = problem_of(graph, costs, priorities={"x": 2, "y": 1})
    found = quick().search(problem)
    assert shape(found) == {("y", (0,)), ("y", (1,))} and found.cost.is_unknown


@pytest.mark.parametrize(
    "wrong",
    [{"population": 0}, {"elites": 12}, {"crossover": 1.5}, {"mutation": -0.1}, {"patience": 0}, {"tournament": 0}],
)
def test_parameters_that_make_no_sense_are_named(wrong: dict[str, float]) -> None:
    [(name, setting)] = wrong.items()
    with pytest.raises(CollageError, match=f"{name}={setting}"):
        quick(**wrong).search(misled())


def test_parameters_are_stored_shown_and_pickled_and_the_name_is_registered() -> None:
    searcher = EvolutionarySearcher(population=20)
    assert isinstance(searcher, Searcher) and repr(searcher).startswith("EvolutionarySearcher(population=20, ")
    assert pickle.loads(pickle.dumps(searcher)).get_params() == searcher.get_params()
    assert plugins.load_class("searchers", "evolutionary") is EvolutionarySearcher
    defaults = EvolutionarySearcher().get_params()
    paper = {"population": 50, "crossover": 0.5, "mutation": 0.2, "gene_mutation": 0.05, "tournament": 5}
    assert {name: defaults[name] for name in paper} == paper
