"""Checkpoints of EvolutionarySearcher: an interrupted evolution goes on as if nothing had happened."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.search import Partitioning, SearchProblem
from searchers.evolutionary import EvolutionarySearcher
from tests.searchers.test_evolutionary import arbitrary, chain, run_by


def problem_with_latencies(interrupt_after: int | None = None) -> SearchProblem:
    """Ctrl-C comes when so many batches have been run."""
    problem = chain(7, {"x": 1.0, "y": 1.1, "z": 1.2})
    latency, done = arbitrary(3, 0.2), [0]

    def measure(partitionings: Sequence[Partitioning]) -> list[Cost]:
        if done[0] == interrupt_after:
            raise KeyboardInterrupt
        done[0] += 1
        return [latency(p) for p in partitionings]

    problem.latency_table.measure = measure
    return problem


def searcher(path: Path | None, **changes: int) -> EvolutionarySearcher:
    settings = {"population": 12, "generations": 8, "patience": 8, "measured_per_generation": 3} | changes
    return EvolutionarySearcher(**settings, time_limit_s=None, checkpoint=path)


def answer(found: Partitioning) -> tuple[object, ...]:
    """All of an answer, without the graph, which every problem has its own of."""
    return [str(c) for c in found.candidates], found.cost, found.lower_bound, found.notes


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_an_interrupted_search_resumed_equals_an_uninterrupted_one(tmp_path: Path, after: int) -> None:
    expected = answer(searcher(None).search(problem_with_latencies()))
    path = tmp_path / "made" / "evolution.json"
    with pytest.raises(KeyboardInterrupt):
        searcher(path).search(problem_with_latencies(after))
    assert path.exists() == (after > 0), "the first checkpoint is written when the initial covers have run"
    assert answer(searcher(path).search(problem_with_latencies())) == expected
    assert answer(searcher(path).search(problem_with_latencies())) == expected, "a finished one gives its answer again"


def test_what_was_measured_is_not_asked_for_again_but_for_the_incumbent(tmp_path: Path) -> None:
    path = tmp_path / "evolution.json"
    problem = problem_with_latencies()
    before = [str(p.candidates) for batch in _search(searcher(path, generations=3), problem) for p in batch]
    problem = problem_with_latencies()
    after = [str(p.candidates) for batch in _search(searcher(path), problem) for p in batch]
    assert after[0] == before[0] and set(after[1:]).isdisjoint(before) and len(after) > 1
    assert problem.latency_table.used


def _search(evolution: EvolutionarySearcher, problem: SearchProblem) -> list[list[Partitioning]]:
    batches = run_by(problem, arbitrary(3, 0.2))
    evolution.search(problem)
    return batches


def test_a_machine_that_became_slower_is_allowed_for(tmp_path: Path) -> None:
    """Everything takes twice as long now: what was measured before must not look twice as good."""
    path = tmp_path / "evolution.json"
    steady = searcher(None).search(problem_with_latencies())
    searcher(path, generations=3).search(problem_with_latencies())
    slower = problem_with_latencies()
    latency = arbitrary(3, 0.2)
    run_by(slower, lambda p: Cost(2 * latency(p).seconds))
    assert answer(searcher(path).search(slower))[0] == answer(steady)[0]


def test_more_generations_go_on_from_a_finished_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "evolution.json"
    searcher(path, generations=2).search(problem_with_latencies())
    assert json.loads(path.read_text())["generation"] == 2
    resumed = searcher(path).search(problem_with_latencies())
    assert answer(resumed) == answer(searcher(None).search(problem_with_latencies()))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: '{"format": "collage-plan", "version": 1}',
        lambda text: json.dumps(json.loads(text) | {"random": [3, [1, 2], None]}),
        lambda text: json.dumps(json.loads(text) | {"population": [{"genome": 5}]}),
        lambda text: json.dumps(json.loads(text) | {"initial": []}),
        lambda text: json.dumps(json.loads(text) | {"leader": [99999]}),
        lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "latencies"}),
    ],
)
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "evolution.json"
    searcher(path, generations=1).search(problem_with_latencies())
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    with pytest.raises(CollageError, match=r"checkpoint .*evolution\.json .*: delete it to begin anew"):
        searcher(path).search(problem_with_latencies())


def test_bytes_and_folders_are_no_checkpoints_either(tmp_path: Path) -> None:
    path = tmp_path / "evolution.json"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(CollageError, match="delete it to begin anew"):
        searcher(path).search(problem_with_latencies())
    with pytest.raises(CollageError, match="delete it to begin anew"):
        searcher(tmp_path).search(problem_with_latencies())


def test_another_version_is_said(tmp_path: Path) -> None:
    path = tmp_path / "evolution.json"
    searcher(path, generations=1).search(problem_with_latencies())
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(CollageError, match="version 99"):
        searcher(path).search(problem_with_latencies())


def test_a_checkpoint_of_another_search_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evolution.json"
    searcher(path, generations=1).search(problem_with_latencies())
    other_costs = chain(7, {"x": 1.0, "y": 1.1, "z": 1.25})
    other_network = chain(6, {"x": 1.0, "y": 1.1, "z": 1.2})
    other_seed = replace(problem_with_latencies(), seed=1)
    for other in (other_costs, other_network, other_seed):
        run_by(other, arbitrary(3, 0.2))
        with pytest.raises(CollageError, match="belongs to another search"):
            searcher(path).search(other)
    with pytest.raises(CollageError, match="belongs to another search"):
        searcher(path, population=13).search(problem_with_latencies())


def test_a_checkpoint_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CollageError, match="cannot be"):
        searcher(tmp_path / "file" / "evolution.json").search(problem_with_latencies())


def test_a_search_without_measurement_leaves_the_checkpoint_alone(tmp_path: Path) -> None:
    """The partitioner asks the same searcher for single-backend placements, which are problems of their own."""
    path = tmp_path / "evolution.json"
    searcher(path, generations=1).search(problem_with_latencies())
    written = path.read_text()
    searcher(path).search(chain(4, {"x": 1.0}))
    assert path.read_text() == written
