"""MeasuredEstimator keeps its timing process for as long as a session lasts, and condemns nothing for its machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from collage.backends.tvm.backend import TVMBackend
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Samples, Workload
from collage.measure.artifact import Artifact, Preparation
from collage.measure.conditions import Conditions
from collage.measure.faults import Failure
from collage.measure.job import Job
from collage.measure.runner import Measurement
from collage.measure.workers import LocalWorkers
from collage.records import RecordDatabase
from collage.testing import networks
from estimators.active import ActiveEstimator
from estimators.cached import CachedEstimator
from estimators.learned import LearnedEstimator
from estimators.measured import MeasuredEstimator
from estimators.replay import ReplayEstimator
from tests.timing_process import NoProcess

MODULES = (networks.look_up(), networks.branches(), networks.convolutions())


class Process(NoProcess):
    """Stands for the timing process: everything takes a second."""

    made: ClassVar[list[Process]] = []

    def __init__(self, threads: int, timeout_s: float) -> None:
        self.threads, self.open = threads, True
        self.warm_ups: list[Artifact | None] = []
        self.made.append(self)

    def start(self) -> None:
        assert self.open

    def measure(self, job: Job) -> list[Measurement]:
        assert self.open
        self.warm_ups += [artifact.warm_up for artifact in job.artifacts]
        return [Measurement((1.0,) * 7) for _ in job.artifacts]

    def close(self) -> None:
        self.open = False


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    def build(preparations: Sequence[Preparation], jobs: int, timeout_s: float) -> list[Artifact]:
        return [p.artifact for p in preparations]

    monkeypatch.setattr("collage.measure.workers.Runner", Process)
    monkeypatch.setattr("collage.measure.workers.build_all", build)
    Process.made.clear()
    yield Process.made
    assert not any(process.open for process in Process.made)


def workload(number: int, threads: int = 1) -> Workload:
    made = Workload.of_module(MODULES[number], TVMBackend(), threads)
    return replace(made, samples=lambda: Samples((), (np.zeros(1),)))


def test_without_a_session_every_call_has_its_own_process(processes: list[Process], tmp_path: Path) -> None:
    estimator = MeasuredEstimator(tmp_path / "records.db")
    for number in (0, 1):
        estimator.estimate([workload(number)])
    assert len(processes) == 2


def test_in_a_session_one_process_and_its_warm_ups_serve_all_calls(processes: list[Process], tmp_path: Path) -> None:
    estimator = MeasuredEstimator(tmp_path / "records.db")
    with estimator.session():
        for number in (0, 1):
            estimator.estimate([workload(number)])
        (process,) = processes
        assert process.open and process.warm_ups[0] is not None
        assert process.warm_ups[0] == process.warm_ups[1]
    estimator.estimate([workload(2)])
    assert len(processes) == 2, "the session is over"


def test_another_number_of_threads_is_another_process(processes: list[Process], tmp_path: Path) -> None:
    estimator = MeasuredEstimator(tmp_path / "records.db")
    with estimator.session():
        for threads in (1, 2):
            estimator.estimate([workload(0, threads)])
        assert [(p.threads, p.open) for p in processes] == [(1, False), (2, True)]


@pytest.mark.parametrize("around", [CachedEstimator, ReplayEstimator, LearnedEstimator, ActiveEstimator])
def test_an_estimator_opens_the_session_of_the_one_that_it_wraps(
    around: type[CostEstimator], processes: list[Process], tmp_path: Path
) -> None:
    inner = MeasuredEstimator(RecordDatabase(tmp_path / "records.db"))
    name = "measured" if around is ActiveEstimator else "fallback"
    with around(**{name: inner}).session():
        inner.estimate([workload(0)])
        inner.estimate([workload(1)])
    assert len(processes) == 1


@pytest.mark.parametrize("around", [CachedEstimator, ReplayEstimator, LearnedEstimator, ActiveEstimator])
def test_an_estimator_passes_workers_on_to_the_one_that_it_wraps(around: type[CostEstimator]) -> None:
    name, workers = "measured" if around is ActiveEstimator else "fallback", LocalWorkers(1)
    assert around(**{name: MeasuredEstimator()}).on(workers).get_params()[name].workers is workers
    assert ActiveEstimator().on(workers).measurer_.get_params()["workers"] is workers


BUSY = Conditions(load=0.6, canary=1.1)


@pytest.mark.usefixtures("processes")
class TestFaultsOfTheMachine:
    """They are tried again, then Unknown, and never recorded."""

    @staticmethod
    def estimate(path: Path, monkeypatch: pytest.MonkeyPatch, *results: Measurement) -> tuple[MeasuredEstimator, Cost]:
        """Where the timing process gives one result after the other for each candidate."""
        given = iter(results)
        monkeypatch.setattr(Process, "measure", lambda _process, job: [next(given) for _ in job.artifacts])
        estimator = MeasuredEstimator(path)
        (cost,) = estimator.estimate([workload(0)])
        assert next(given, None) is None
        return estimator, cost

    FULL = Measurement.failed(Failure("does not run: No space left on device", "machine"))

    def test_space_may_be_free_when_the_others_are_done(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _, cost = self.estimate(tmp_path / "records.db", monkeypatch, self.FULL, Measurement((1.0,) * 7))
        assert cost.is_finite

    def test_what_fails_again_is_unknown_and_not_recorded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, cost = self.estimate(tmp_path / "records.db", monkeypatch, self.FULL, self.FULL)
        assert cost.is_unknown and "No space left" in cost.reason
        with RecordDatabase(tmp_path / "records.db") as database:
            assert len(database) == 0

    def test_the_conditions_are_recorded_and_a_plan_is_told_when_they_were_bad(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measurement = Measurement((1.0,) * 7, conditions=BUSY)
        estimator, _ = self.estimate(tmp_path / "records.db", monkeypatch, measurement)
        with RecordDatabase(tmp_path / "records.db") as database:
            assert [record.conditions for record in database] == [BUSY.as_dict()]
        (note,) = estimator.notes([])
        assert "1 of 1 candidates" in note and "60%" in note

    def test_without_space_for_a_folder_nothing_is_known_and_nothing_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("tempfile.mkdtemp", full)
        _, cost = self.estimate(tmp_path / "records.db", monkeypatch)
        assert cost.is_unknown and "No space left" in cost.reason
