"""Latencies of placements that ran end to end, when the machine drifts between the runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.confirm.latencies import Latencies
from collage.graph.candidates import CandidatePartition
from collage.records import RecordDatabase
from collage.search import Partitioning
from collage.testing.problems import candidate, graph_of, problem_of
from tests.collage.confirm.races import MadeUpRunner

GRAPH = graph_of([[], [0], [1]])
SECONDS = {"x": 1.0, "y": 1.2, "z": 0.9}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RecordDatabase]:
    with RecordDatabase(tmp_path / "records.db") as opened:
        yield opened


def placement(backend: str) -> Partitioning:
    chosen: list[CandidatePartition] = [candidate(GRAPH, backend, [i]) for i in range(3)]
    return problem_of(GRAPH, {c: 1.0 for c in chosen}).partitioning(chosen)


def latencies(database: RecordDatabase) -> tuple[Latencies, MadeUpRunner]:
    """The whole machine is half as fast again in every race."""
    runner = MadeUpRunner(SECONDS, slower=1.5, noise=0.0)
    return Latencies("network", {}, runner, database), runner  # type: ignore[arg-type]


def test_a_machine_that_became_slower_does_not_count(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    first = measure([placement("x"), placement("y")])
    later = measure([placement("z"), placement("y")])
    assert [cost.seconds for cost in (*first, *later)] == pytest.approx([1.0, 1.2, 0.9, 1.2])
    assert runner.races == [["x", "y"], ["x", "z"]], "the anchor runs along, and nobody else twice"


def test_what_slows_both_is_in_nobodys_interval(database: RecordDatabase) -> None:
    measure, _ = latencies(database)
    anchor, other = measure([placement("x"), placement("y")])
    assert anchor.spread == 0.0 and other.spread == pytest.approx(0.0, abs=1e-12)


def test_again_runs_everybody_and_tells_by_the_first_ones_latency_of_now(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    measure([placement("x"), placement("y"), placement("z")])
    again = measure.again([placement("x"), placement("z")])
    assert [cost.seconds for cost in again] == pytest.approx([1.5, 1.35])
    assert runner.races[1:] == [["x", "z"]]
    assert [cost.seconds for cost in measure([placement("z")])] == pytest.approx([0.9]), "it does not change"


def test_the_same_few_are_not_run_a_third_time(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    reported = measure.again([placement("x"), placement("z")])
    other, runner_of_other = latencies(database)
    assert other.again([placement("x"), placement("z")]) == reported
    assert not runner_of_other.races and len(runner.races) == 1
    other.again([placement("x"), placement("y")])
    assert runner_of_other.races == [["x", "y"]], "another contest is another run"
