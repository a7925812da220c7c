"""Latencies of placements that ran end to end, when the machine drifts between the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from collage.confirm.latencies import Latencies
from collage.graph.candidates import CandidatePartition
from collage.measure.plan_runner import Placement
from collage.measure.protocol import END_TO_END
from collage.measure.runner import Measurement
from collage.records import RecordDatabase
from collage.search import Partitioning
from collage.testing.problems import candidate, graph_of, problem_of

GRAPH = graph_of([[], [0], [1]])
SECONDS = {"x": 1.0, "y": 1.2, "z": 0.9}


class DriftingRunner:
    """Runs placements of one backend each; the whole machine is half as fast again in every job."""

    threads = 2
    protocol = END_TO_END

    def __init__(self) -> None:
        self.jobs: list[list[str]] = []

    def measure(self, placements: Mapping[str, Placement], stage: str) -> dict[str, Measurement]:
        backends = {name: placement[0].backend for name, placement in placements.items() if placement}
        self.jobs.append(list(backends.values()))
        slow = 1.5 ** (len(self.jobs) - 1)
        noise = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03, 0.97]
        return {
            name: Measurement(tuple(SECONDS[backend] * slow * n for n in noise), "converged")
            for name, backend in backends.items()
        }

    def forget(self, placements: Sequence[Placement]) -> None:
        pass


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RecordDatabase]:
    with RecordDatabase(tmp_path / "records.db") as opened:
        yield opened


def placement(backend: str) -> Partitioning:
    chosen: list[CandidatePartition] = [candidate(GRAPH, backend, [i]) for i in range(3)]
    return problem_of(GRAPH, {c: 1.0 for c in chosen}).partitioning(chosen)


def latencies(database: RecordDatabase) -> tuple[Latencies, DriftingRunner]:
    runner = DriftingRunner()
    return Latencies("network", {}, runner, database), runner  # type: ignore[arg-type]


def test_a_machine_that_became_slower_does_not_count(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    first = measure([placement("x"), placement("y")])
    later = measure([placement("z"), placement("y")])
    assert [cost.seconds for cost in (*first, *later)] == pytest.approx([1.0, 1.2, 0.9, 1.2])
    assert runner.jobs == [["x", "y"], ["x", "z"]], "the anchor runs along, and nobody else twice"


def test_what_slows_both_is_in_nobodys_interval(database: RecordDatabase) -> None:
    measure, _ = latencies(database)
    anchor, other = measure([placement("x"), placement("y")])
    assert anchor.spread == 0.0 and other.spread == pytest.approx(0.0, abs=1e-12)


def test_again_runs_everybody_and_tells_by_the_first_ones_latency_of_now(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    measure([placement("x"), placement("y"), placement("z")])
    again = measure.again([placement("x"), placement("z")])
    assert [cost.seconds for cost in again] == pytest.approx([1.5, 1.35])
    assert runner.jobs[1:] == [["x", "z"]]
    assert [cost.seconds for cost in measure([placement("z")])] == pytest.approx([0.9]), "it does not change"


def test_the_same_few_are_not_run_a_third_time(database: RecordDatabase) -> None:
    measure, runner = latencies(database)
    reported = measure.again([placement("x"), placement("z")])
    other, runner_of_other = latencies(database)
    assert other.again([placement("x"), placement("z")]) == reported
    assert not runner_of_other.jobs and len(runner.jobs) == 1
    other.again([placement("x"), placement("y")])
    assert runner_of_other.jobs == [["x", "y"]], "another contest is another run"
