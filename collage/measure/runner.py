"""Runner: keeps one timing process alive and survives what happens in it (Invariant 5 of the architecture).

An artifact that hangs, crashes or is killed costs itself and one process; the others of its job are timed again in the
next one. After MetaSchedule's Runner (tvm/s_tir/meta_schedule/runner) and Kernel Tuner's runners.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from dataclasses import dataclass, replace
from types import TracebackType
from typing import IO

from collage.cost import Cost
from collage.errors import CollageError
from collage.measure.helper import command
from collage.measure.job import Begin, Done, Failed, Job, Parts, Ready, Retired, Timed, receive, send
from collage.measure.statistics import Summary
from collage.runtime.threads import thread_environment

#: Seconds in which a timing process has to come up: where nothing is cached yet, it compiles its clock.
_START_S = 300.0


@dataclass(frozen=True)
class Measurement:
    """The result of one artifact: samples in seconds and why sampling stopped, or the reason why there are none. Of a
    whole network also how long each of its calls took, and on an accelerator how long the host took to issue it.
    """

    samples: tuple[float, ...] = ()
    reason: str = ""
    parts: Parts = ()
    launches: Parts = ()

    @property
    def valid(self) -> bool:
        return bool(self.samples)

    @property
    def cost(self) -> Cost:
        """Median and spread of the samples; Invalid, with the reason, when there are none."""
        if not self.valid:
            return Cost.invalid(self.reason)
        summary = Summary.of(self.samples)
        return Cost(summary.median, summary.spread, summary.count, self.reason)


class Runner:
    """Times jobs in a separate process, one at a time.

    Parameters
    ----------
    threads
        Number of threads of the deployment.
    timeout_s
        Seconds without an event after which an artifact counts as hanging; they start when the process has come up.
    """

    def __init__(self, threads: int, timeout_s: float = 60.0) -> None:
        self.threads = threads
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None

    def measure(self, job: Job) -> list[Measurement]:
        """One measurement per artifact. Never raises for what an artifact does."""
        results: dict[int, Measurement] = {}
        while True:
            rest = [i for i in range(len(job.artifacts)) if i not in results]
            if not rest:
                return [results[i] for i in range(len(job.artifacts))]
            partial = replace(job, artifacts=tuple(job.artifacts[i] for i in rest))
            found, culprit = self._attempt(partial)
            results.update({rest[i]: measurement for i, measurement in found.items()})
            if culprit is not None:
                results[rest[culprit[0]]] = Measurement(reason=culprit[1])

    def _attempt(self, job: Job) -> tuple[dict[int, Measurement], tuple[int, str] | None]:
        """Run a job once: the measurements, and the artifact that hung or crashed with the reason."""
        found: dict[int, Measurement] = {}
        current: Begin | None = None
        fresh = self._process is None or self._process.poll() is not None
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, job)
            while True:
                self._wait(process.stdout, self.timeout_s if current else max(self.timeout_s, _START_S))
                event = receive(process.stdout)
                if isinstance(event, Ready):
                    current = Begin(0, "loading")
                elif isinstance(event, Begin):
                    current = event
                elif isinstance(event, Failed):
                    found[event.artifact] = Measurement(reason=event.reason)
                elif isinstance(event, Timed):
                    found[event.artifact] = Measurement(event.samples, event.reason, event.parts, event.launches)
                elif isinstance(event, Retired):
                    self.close()
                    if not found:
                        raise CollageError(f"the device cannot be used: {event.reason}")
                    return found, None
                elif isinstance(event, Done):
                    return found, None
        except TimeoutError:
            self.close()
            if current is None:
                raise CollageError("the timing process does not come up: no answer in time") from None
            return found, (current.artifact, f"hangs while {current.stage}: no answer within {self.timeout_s:g} s")
        except (EOFError, BrokenPipeError):
            cause = self._exit_cause(process)
            self.close()
            if current is None:
                if fresh:
                    raise CollageError(f"the timing process does not come up: {cause}") from None
                return found, None  # it died of an earlier job; the next one is another process
            reason = f"crashes while {current.stage}: {cause}"
            if current.artifact in found:
                raise CollageError(f"the timing process died outside of any candidate: {reason}") from None
            return found, (current.artifact, reason)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
            self._process = subprocess.Popen(
                command("collage.measure.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,  # what has arrived is then always visible to the selector
                env={**os.environ, **thread_environment(self.threads)},
                start_new_session=True,
            )
        return self._process

    @staticmethod
    def _wait(stream: IO[bytes], seconds: float) -> None:
        """Until there is something to read."""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError

    def _exit_cause(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        cause = f"exit status {code}"
        if code < 0:
            cause = f"killed by {signal.Signals(-code).name}"
        lines: list[str] = []
        if self._stderr is not None:
            self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, self._stderr.tell() - 2000))
            lines = [line.strip() for line in self._stderr.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{cause} ({lines[-1][:300]})" if lines else cause

    def close(self) -> None:
        """Stop the timing process, whatever it is doing."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:  # a job was still in the buffer
                        continue
        if self._stderr is not None:
            self._stderr.close()
            self._stderr = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
