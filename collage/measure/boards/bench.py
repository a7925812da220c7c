"""The process that speaks with a board: uploads artifacts, checks them there, and times them interleaved (A B A B).

`collage.measure.boards.board` starts it, as a `collage.measure.helper`. TVM's RPC waits for a board without a limit.
Before each stage that may hang, this process therefore reports the artifact, and the tuning process ends it if nothing
follows. A session with a board ends with its job: the board is free between jobs, and whatever a candidate has broken
there is gone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from collage.arrays import read_array
from collage.backends.tvm.target import linker_of, target_text
from collage.errors import last_line
from collage.measure.boards.files import BoardFiles, build_reader
from collage.measure.boards.identity import BoardIdentity, fingerprint_of, identify
from collage.measure.boards.messages import Describe, Described, Setup
from collage.measure.boards.session import BoardLost, RemoteArtifact, require_present, session_of
from collage.measure.faults import Failure, blame_of
from collage.measure.framing import receive, send
from collage.measure.helper import channels, run_and_exit
from collage.measure.job import Begin, Done, Event, Failed, Job, Ready, Retired, Timed
from collage.measure.worker import checked, sample

Send = Callable[[Event], None]


def main() -> None:
    """Serve until the other side closes the pipe."""
    requests, answers = channels()
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        serve(requests, answers, Path(folder))


def serve(requests: IO[bytes], answers: IO[bytes], folder: Path) -> None:
    """Answer one request after the other, of which the setup is the first."""
    bench = Bench(receive(requests), folder)
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        if isinstance(request, Describe):
            send(answers, bench.describe())
        else:
            bench.run(request, lambda event: send(answers, event))


class Bench:
    """What is done for each request.

    Parameters
    ----------
    folder
        For files of this process.
    """

    def __init__(self, setup: Setup, folder: Path) -> None:
        self._setup = setup
        self._folder = folder
        self._reader: Path | None = None

    def describe(self) -> Described:
        """What the board is."""
        try:
            with session_of(self._setup) as session:
                found = self._identified(session)
                del session
        except Exception as error:  # whatever TVM raises, the board cannot be used
            return Described(None, last_line(error))
        self._setup = replace(self._setup, target=found.target, fingerprint=found.device.fingerprint)
        return Described(found)

    def run(self, job: Job, emit: Send) -> None:
        """Load and check every artifact on a board, then sample those that are right."""
        at: list[int] = []

        def noting(event: Event) -> None:
            if isinstance(event, Begin):
                at[:] = [event.artifact]
            emit(event)

        try:
            with session_of(self._setup, len(job.artifacts)) as session:
                self._run_with(session, job, noting)
                del session
        except BoardLost as lost:
            if not at:
                emit(Retired(str(lost)))
                return
            emit(Failed(at[0], Failure(str(lost), "machine")))
        emit(Done())

    def _identified(self, session: Any) -> BoardIdentity:
        target = self._setup.target or _target_of(session)
        return identify(self._files(session, target), target)

    def _files(self, session: Any, target: dict[str, Any]) -> BoardFiles:
        if self._reader is None:
            self._reader = build_reader(target, linker_of(target), self._folder)
        try:
            return BoardFiles(session, self._reader)
        except Exception as error:
            require_present(session, error)
            text = target_text(target)
            raise RuntimeError(
                f"what is compiled for {text!r} does not load on the board: {last_line(error)}"
            ) from None

    def _run_with(self, session: Any, job: Job, emit: Send) -> None:
        try:
            self._require_same(session)
            session.get_function("runtime.config_threadpool")(0, job.threads)
        except Exception as error:
            raise error if isinstance(error, BoardLost) else BoardLost(last_line(error)) from None
        inputs = [read_array(path) for path in job.inputs]
        expected = [read_array(path) for path in job.expected]
        emit(Ready())
        ready: dict[int, RemoteArtifact] = {}
        first: dict[int, float] = {}
        for i, artifact in enumerate(job.artifacts):
            emit(Begin(i, "loading"))
            try:
                loaded = RemoteArtifact(session, artifact, inputs, f"candidate{i}", job.protocol)
                emit(Begin(i, "running"))
                _, problem = checked(loaded, job, expected, artifact.tolerance)
                if problem is None:
                    emit(Begin(i, "timing"))
                    first[i] = loaded.time_once(job.protocol, job.threads)
                    ready[i] = loaded
            except Exception as error:  # whatever the board raises makes this one candidate fail, if it is there still
                require_present(session, error)
                problem = Failure(f"does not run: {last_line(error)}", blame_of(error))
            if problem is not None:
                emit(Failed(i, problem))
        try:
            sampled = sample(ready, first, job.protocol, job.threads, emit)
        except Exception as error:  # what has run before does not fail by itself
            raise BoardLost(f"the board was lost: {last_line(error)}") from None
        for i, timed in sampled.items():
            emit(Timed(i, tuple(timed.samples), timed.reason))

    def _require_same(self, session: Any) -> None:
        """Raise BoardLost where the tracker lends a board of another kind: costs of two would be mixed."""
        wanted = self._setup.fingerprint
        if self._setup.target is None or not wanted:
            return
        found = fingerprint_of(self._files(session, self._setup.target))
        if found != wanted:
            raise BoardLost(
                f"boards of two kinds have the key {self._setup.address.key}: {wanted} and {found}: give each kind a "
                "key of its own"
            )


def _target_of(session: Any) -> dict[str, Any]:
    """The target that the compiler of a whole TVM on the board names."""
    try:
        triple = str(session.get_function("target.llvm_get_system_triple")())
        return {"kind": "llvm", "mtriple": triple, "mcpu": str(session.get_function("target.llvm_get_system_cpu")())}
    except Exception as error:
        require_present(session, error)
        raise RuntimeError(
            'the board has TVM\'s runtime alone and cannot name its processor: say it with --target "llvm -mtriple=..."'
        ) from None


if __name__ == "__main__":
    run_and_exit(main)
