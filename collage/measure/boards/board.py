"""Board: the workers for a board. They build on this host and time on the board."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from collage.backends.base import Backend
from collage.backends.tvm.target import linker_of, parse_target, target_text
from collage.errors import BackendUnavailableError, CollageError
from collage.measure.artifact import Artifact, Preparation, compile_artifact
from collage.measure.boards.address import BoardAddress
from collage.measure.boards.identity import BoardIdentity
from collage.measure.boards.messages import Describe, Described, Setup
from collage.measure.boards.tracker import require_board
from collage.measure.builder import Built, build_all
from collage.measure.faults import Failure
from collage.measure.helper_process import HelperProcess, Overdue
from collage.measure.job import Job
from collage.measure.runner import Measurement, Runner
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.runtime.device_info import DeviceInfo
from collage.runtime.threads import default_threads

#: Seconds in which a board has to say what it is, besides those in which it has to be free.
_DESCRIBE_S = 60.0


class Board(Workers):
    """Builds on this host, and times on the boards of one key at a tracker, one job at a time.

    A board that is lost gets the job again when the tracker lends one; after the second time, and where no board comes
    back, what was asked is Unknown.

    Parameters
    ----------
    address
        As "rpc://tracker:9190/key".
    target
        TVM's target, as "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"; None asks the board.
    timeout_s
        Seconds after which a candidate that does not compile, load or answer counts as hanging.
    patience_s
        Seconds in which a board has to be free: it may have to start again, or its server has to end the session of
        a candidate that hangs.

    Raises
    ------
    CollageError
        The address or the target cannot be read, nobody answers there, or the board cannot be used.
    """

    def __init__(
        self,
        address: str,
        target: str | None,
        reporter: Reporter,
        timeout_s: float = 60.0,
        patience_s: float = 240.0,
    ) -> None:
        self.address = BoardAddress.parse(address)
        given = None if target is None else parse_target(target)
        require_board(self.address)
        self.reporter = reporter
        self.timeout_s = timeout_s
        self._runner = _BoardRunner(Setup(self.address, given, "", patience_s, timeout_s), timeout_s)
        self._timed = 0
        self._lost: Failure | None = None
        try:
            self._found = self._runner.describe()
        except BaseException:
            self._runner.close()
            raise
        self._linker = linker_of(self.target)

    @property
    def device(self) -> DeviceInfo:
        return self._found.device

    @property
    def target(self) -> Mapping[str, Any]:
        """TVM's target of the board."""
        return self._found.target

    @property
    def suffix(self) -> str:
        """How the names of files end that are made for it."""
        return self._linker.suffix

    @property
    def builds(self) -> int:
        return default_threads()

    def build(self, preparations: Iterable[Preparation]) -> list[Built]:
        if self._lost is not None:
            return [self._lost for _ in preparations]
        named = (replace(p, artifact=self._named(p.artifact)) for p in preparations)
        return build_all(named, self.builds, self.timeout_s, partial(compile_artifact, linker=self._linker))

    def measure(self, jobs: Iterable[Job], reporter: Reporter) -> Iterator[tuple[int, list[Measurement]]]:
        for number, job in enumerate(jobs):
            found = [replace(m, host=self._found.host) for m in self._measured(job)]
            self._timed += sum(m.valid for m in found)
            yield number, found

    def backends(self, wanted: Mapping[str, Backend]) -> tuple[dict[str, Backend], tuple[str, ...]]:
        """Those of some backends that the board can run, made for it; and a note on the others.

        Raises
        ------
        BackendUnavailableError
            It can run none of them.
        """
        made = {name: backend.on_board(self.target) for name, backend in wanted.items()}
        able = {name: backend for name, backend in made.items() if backend is not None}
        others = [name for name in made if name not in able]
        if not able:
            raise BackendUnavailableError(
                f"a board runs what needs TVM's runtime alone, and not {', '.join(others)}: add tvm to the backends"
            )
        return able, (f"left out, because they have no runtime on a board: {', '.join(others)}",) if others else ()

    def notes(self) -> list[str]:
        device, target = self.device, target_text(self.target)
        found = [
            f"the plan is for the board {self.address}: {device.model}, {device.cores} processors, {target!r}; "
            f"{self._timed:,} sub-graphs and plans were timed there"
        ]
        return found if self._lost is None else [*found, self._lost.reason]

    def close(self) -> None:
        self._runner.close()

    def _named(self, artifact: Artifact) -> Artifact:
        return replace(artifact, library=str(Path(artifact.library).with_suffix(self.suffix)))

    def _measured(self, job: Job) -> list[Measurement]:
        if self._lost is None:
            try:
                return self._runner.measure(job)
            except CollageError as error:
                self._lost = Failure(f"the board {self.address} was lost, and did not come back: {error}", "machine")
                self.reporter.note(self._lost.reason)
        return [Measurement.failed(self._lost)] * len(job.artifacts)


class _BoardRunner(Runner):
    """Times jobs by the process that speaks with a board."""

    def __init__(self, setup: Setup, timeout_s: float) -> None:
        super().__init__(default_threads(), timeout_s)
        self._setup = setup

    def describe(self) -> BoardIdentity:
        """What the board is.

        Raises
        ------
        CollageError
            It cannot say so.
        """
        process = self.start()
        try:
            process.send(Describe())
            answer: Described = process.receive(self._setup.patience_s + _DESCRIBE_S)
        except Overdue:
            raise CollageError(f"the board {self._setup.address} does not answer") from None
        except (EOFError, BrokenPipeError):
            _, cause = process.exit_status()
            raise CollageError(f"the board {self._setup.address} cannot be asked: {cause}") from None
        if answer.found is None:
            raise CollageError(f"the board {self._setup.address} cannot be used: {answer.problem}")
        found = answer.found
        self._setup = replace(self._setup, target=found.target, fingerprint=found.device.fingerprint)
        return found

    def _new_process(self) -> HelperProcess:
        process = HelperProcess("collage.measure.boards.bench", {})
        process.send(self._setup)
        return process

    def _blamed(self, failure: Failure) -> Failure:
        """A board that was cut off looks like a candidate that hangs: the candidate is not condemned for it."""
        return replace(failure, blame="machine")


@contextmanager
def board_at(
    runner: str | None,
    target: str | None,
    reporter: Reporter,
    devices: Iterable[str] = ("cpu",),
    workers: str | None = None,
) -> Iterator[Board | None]:
    """The boards at an address; None without one: who measures brings its own.

    Raises
    ------
    CollageError
        As of `Board`; or the address does not go together with the other parameters.
    """
    if runner is None:
        if target is not None:
            raise CollageError("--target says what a board is: name it, too, as --runner rpc://tracker:9190/key")
        yield None
        return
    if workers is not None:
        raise CollageError("--workers and --runner are two ways to time candidates: leave one out")
    if set(devices) != {"cpu"}:
        raise CollageError("boards are timed as processors only: leave --runner out for other devices")
    with closing(Board(runner, target, reporter)) as board:
        yield board
