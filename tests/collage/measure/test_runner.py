"""What the runner does with a timing process that dies or hangs, and with the artifacts that it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collage.errors import CollageError
from collage.measure.artifact import Artifact
from collage.measure.faults import Failure
from collage.measure.helper_process import Overdue
from collage.measure.job import Begin, Done, Failed, Job, Ready, Timed
from collage.measure.protocol import Protocol
from collage.measure.runner import Measurement, Runner

RIGHT = Measurement((1.0,), "converged")
KILLED, SEGFAULT = (-9, "killed by SIGKILL"), (-11, "killed by SIGSEGV")
#: What becomes of an artifact at its so-manieth trial.
Fate = Callable[[int], Any]


class ScriptedRunner(Runner):
    """Its processes treat each artifact by its fate, and remember what they were given."""

    def __init__(self, fates: dict[str, Fate]) -> None:
        super().__init__(1)
        self.fates = fates
        self.trials = dict.fromkeys(fates, 0)
        self.processes: list[list[list[str]]] = []

    def start(self) -> Any:
        if self._process is None or not self._process.alive:
            self.processes.append([])
            self._process = ScriptedProcess(self)  # type: ignore[assignment]
        return self._process


class ScriptedProcess:
    """Ends as the fates say."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self.runner, self.alive, self.ended = runner, True, (0, "")
        self.events: Iterator[Any] = iter(())

    def send(self, job: Job) -> None:
        names = [artifact.library for artifact in job.artifacts]
        self.runner.processes[-1].append(names)
        self.events = self.answer(names)

    def answer(self, names: list[str]) -> Iterator[Any]:
        yield Ready()
        fine = []
        for i, name in enumerate(names):
            yield Begin(i, "running")
            self.runner.trials[name] += 1
            fate = self.runner.fates[name](self.runner.trials[name])
            if isinstance(fate, Overdue):
                raise fate
            if isinstance(fate, tuple):
                self.ended = fate
                raise EOFError
            if isinstance(fate, Failure):
                yield Failed(i, fate)
            else:
                fine.append(i)
        for i in fine:
            yield Timed(i, RIGHT.samples, RIGHT.reason)
        yield Done()

    def receive(self, _seconds: float) -> Any:
        return next(self.events)

    def exit_status(self) -> tuple[int, str]:
        return self.ended

    def close(self) -> None:
        self.alive = False


def measure(**fates: Fate) -> tuple[list[Measurement], list[list[list[str]]]]:
    """The measurements, and the jobs of each process."""
    with ScriptedRunner(fates) as runner:
        artifacts = tuple(Artifact(name) for name in fates)
        return runner.measure(Job(artifacts, (), (), Protocol(), 1)), runner.processes


def right(_trial: int) -> Any:
    return None


def once(fate: Any) -> Fate:
    return lambda trial: fate if trial == 1 else None


def always(fate: Any) -> Fate:
    return lambda _: fate


def test_one_that_crashes_is_tried_alone_and_condemned_by_its_second_crash() -> None:
    (a, b, c), processes = measure(a=right, b=always(SEGFAULT), c=right)
    assert a == c == RIGHT
    assert b == Measurement(reason="crashes while running: killed by SIGSEGV")
    assert processes == [[["a", "b", "c"]], [["a", "c"]], [["b"]]]


def test_one_that_crashes_once_is_measured() -> None:
    (a, b), processes = measure(a=once(SEGFAULT), b=right)
    assert a == b == RIGHT
    assert processes == [[["a", "b"]], [["b"]], [["a"]]]


def test_a_process_that_is_killed_costs_no_candidate_anything() -> None:
    (a, b), processes = measure(a=right, b=once(KILLED))
    assert a == b == RIGHT and processes == [[["a", "b"]], [["a", "b"]]]


def test_one_whose_process_is_always_killed_is_unknown() -> None:
    (a, b), _ = measure(a=right, b=always(KILLED))
    assert a == RIGHT and b.cost.is_unknown and "SIGKILL" in b.cost.reason


def test_a_limit_that_passes_on_a_calm_machine_is_the_candidates_fault() -> None:
    (a, b), processes = measure(a=always(Overdue("candidate")), b=right)
    assert a.cost.is_invalid and a.reason == "hangs (no answer within 60 s while running)" and b == RIGHT
    assert len(processes) == 2


def test_a_limit_that_passes_on_a_busy_machine_is_not() -> None:
    (first,), _ = measure(a=once(Overdue("machine")))
    (second,), _ = measure(a=always(Overdue("machine")))
    assert first == RIGHT and second.cost.is_unknown


def test_space_may_be_free_again() -> None:
    full = Failure("does not run: No space left on device", "machine")
    (a, b), _ = measure(a=once(full), b=always(full))
    assert a == RIGHT and b == Measurement.failed(full) and b.cost.is_unknown


def test_a_process_that_never_comes_up_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_process: Any, _seconds: float) -> Any:
        raise EOFError

    monkeypatch.setattr(ScriptedProcess, "receive", ended)
    monkeypatch.setattr(ScriptedProcess, "exit_status", lambda _: (1, "exit status 1 (ImportError)"))
    with pytest.raises(CollageError, match="does not come up, or does not stay: exit status 1"):
        measure(a=right)
