"""Runner: keeps one timing process alive and survives its failures (Invariant 5 of the architecture).

An artifact that hangs, crashes or is killed costs one process. The other artifacts of its job are timed again in the
next process, and it is tried again alone if it may not be to blame (`collage.measure.faults`). After MetaSchedule's
Runner (tvm/s_tir/meta_schedule/runner) and Kernel Tuner's runners.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import TracebackType

from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.measure.conditions import Conditions
from collage.measure.faults import Blame, Failure, Trials
from collage.measure.helper_process import HelperProcess, Overdue
from collage.measure.job import Begin, Done, Failed, Job, Ready, Retired, Timed
from collage.measure.statistics import Summary
from collage.runtime.threads import thread_environment

#: Seconds in which a timing process has to come up: where nothing is cached yet, it compiles its clock.
_START_S = 300.0

_Environment = tuple[tuple[str, str], ...]
#: Timing processes that runners have left to the next one; None outside `kept_processes`.
_kept: ContextVar[dict[_Environment, HelperProcess] | None] = ContextVar("kept", default=None)

#: How many processes may be lost, of which no artifact is the cause, before nothing is tried any more.
_LOST = 3


@dataclass(frozen=True)
class Measurement:
    """The result of one artifact: samples in seconds and why sampling stopped, or the reason why there are none and
    who is to blame.

    Attributes
    ----------
    host
        Where they were taken (`collage.measure.host`); "" is this one.
    lost
        How many workers of a fleet were lost with the job before.
    """

    samples: tuple[float, ...] = ()
    reason: str = ""
    blame: Blame = "candidate"
    conditions: Conditions = field(default_factory=Conditions)
    host: str = ""
    lost: int = 0

    @classmethod
    def failed(cls, failure: Failure) -> Measurement:
        """Without samples."""
        return cls(reason=failure.reason, blame=failure.blame)

    @property
    def valid(self) -> bool:
        return bool(self.samples)

    @property
    def recorded_conditions(self) -> dict[str, float] | None:
        """The conditions as an observation has them; None where there are no samples."""
        if not self.valid:
            return None
        return self.conditions.as_dict() | ({"lost": float(self.lost)} if self.lost else {})

    @property
    def cost(self) -> Cost:
        """Median and spread of the samples; where there are none Invalid, or Unknown where the machine is to blame,
        with the reason.
        """
        if not self.valid:
            return Cost.unknown(self.reason) if self.blame == "machine" else Cost.invalid(self.reason)
        summary = Summary.of(self.samples)
        return Cost(summary.median, summary.spread, summary.count, self.reason)


@dataclass
class _Attempt:
    """What came of a job in one process.

    Attributes
    ----------
    found
        What is known of its artifacts, by their positions.
    lost
        The artifact at which the process was when it ended, and why it ended.
    cause
        Why it ended while it was at none.
    """

    found: dict[int, Measurement | Failure] = field(default_factory=dict)
    lost: tuple[int, Failure] | None = None
    cause: str = ""


@contextmanager
def kept_processes() -> Iterator[None]:
    """Within it a runner can leave its process to another one of as many threads, since it takes seconds to come up.
    What nobody took over is stopped at the end.
    """
    left: dict[_Environment, HelperProcess] = {}
    token = _kept.set(left)
    try:
        yield
    finally:
        _kept.reset(token)
        for process in left.values():
            process.close()


class Runner:
    """Times jobs in a separate process, one at a time.

    Parameters
    ----------
    threads
        Number of threads of the deployment.
    timeout_s
        Seconds without an event after which an artifact counts as hanging; they start when the process has come up,
        and are extended by the time that it waits for a processor.
    """

    def __init__(self, threads: int, timeout_s: float = 60.0) -> None:
        self.threads = threads
        self.timeout_s = timeout_s
        self._process: HelperProcess | None = None

    def measure(self, job: Job) -> list[Measurement]:
        """One measurement per artifact. Never raises for what an artifact does.

        Raises
        ------
        CollageError
            The timing process does not come up, or ends again and again while it is at no artifact.
        """
        results: dict[int, Measurement] = {}
        trials = [Trials() for _ in job.artifacts]
        suspects: set[int] = set()
        lost = 0
        while rest := [i for i in range(len(job.artifacts)) if i not in results]:
            chosen = [i for i in rest if i not in suspects]
            if not chosen:
                self.close()  # a suspect is tried in a fresh process, alone
                chosen = rest[:1]
            fresh = self._process is None or not self._process.alive
            attempt = self._attempt(replace(job, artifacts=tuple(job.artifacts[i] for i in chosen)))
            failures = [attempt.lost] if attempt.lost is not None else []
            for i, found in attempt.found.items():
                if isinstance(found, Failure):
                    failures.append((i, found))
                else:
                    results[chosen[i]] = found
            for i, failure in failures:
                verdict = trials[chosen[i]].judge(failure, fresh)
                if verdict is not None:
                    results[chosen[i]] = Measurement.failed(verdict)
                elif failure.blame == "crash":
                    suspects.add(chosen[i])
            lost += bool(attempt.cause) and fresh  # another one may have died of an earlier job
            if lost >= _LOST:
                raise CollageError(f"the timing process does not come up, or does not stay: {attempt.cause}")
        return [results[i] for i in range(len(job.artifacts))]

    def _attempt(self, job: Job) -> _Attempt:
        """Run a job once."""
        attempt = _Attempt()
        current: Begin | None = None
        process = self.start()
        try:
            process.send(job)
            while True:
                event = process.receive(self.timeout_s if current else max(self.timeout_s, _START_S))
                if isinstance(event, Ready):
                    current = Begin(0, "loading")
                elif isinstance(event, Begin):
                    current = event
                elif isinstance(event, Failed):
                    attempt.found[event.artifact] = event.failure
                elif isinstance(event, Timed):
                    attempt.found[event.artifact] = Measurement(
                        event.samples, event.reason, conditions=event.conditions
                    )
                elif isinstance(event, Retired):
                    self.close()
                    if not attempt.found:
                        raise CollageError(f"the device cannot be used: {event.reason}")
                    return attempt
                elif isinstance(event, Done):
                    return attempt
        except Overdue as overdue:
            self.close()
            if current is None:
                attempt.cause = "no answer in time"
            else:
                reason = f"hangs (no answer within {self.timeout_s:g} s while {current.stage})"
                attempt.lost = current.artifact, self._blamed(Failure(reason, overdue.blame))
        except (EOFError, BrokenPipeError):
            code, cause = process.exit_status()
            self.close()
            if current is None or current.artifact in attempt.found:
                attempt.cause = cause
            else:
                failure = Failure.of_exit(code, f"crashes while {current.stage}", cause)
                attempt.lost = current.artifact, self._blamed(failure)
        return attempt

    def start(self) -> HelperProcess:
        """Have the timing process come up, which takes seconds, while something else is done."""
        if self._process is None or not self._process.alive:
            self.close()
            self._process = self._new_process()
        return self._process

    def _new_process(self) -> HelperProcess:
        return HelperProcess("collage.measure.worker", thread_environment(self.threads))

    def _blamed(self, failure: Failure) -> Failure:
        """What it means that the process hangs or ends while it is at an artifact."""
        return failure

    def leave(self) -> None:
        """Close, but leave the process to another runner of as many threads, within `kept_processes`."""
        kept = _kept.get()
        if kept is not None and self._process is not None and self._environment not in kept:
            kept[self._environment], self._process = self._process, None
        self.close()

    def take_over(self) -> None:
        """Go on with a process that was left, where this one has none."""
        if self._process is None:
            self._process = (_kept.get() or {}).pop(self._environment, None)

    @property
    def _environment(self) -> _Environment:
        return tuple(thread_environment(self.threads).items())

    def close(self) -> None:
        """Stop the timing process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
