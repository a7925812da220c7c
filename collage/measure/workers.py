"""Workers: the processes that build candidates and time them.

There are three kinds: processes on this host (`LocalWorkers`), workers of a cluster (`collage.measure.fleet`), and
boards (`collage.measure.boards`). The code that measures uses this interface alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from types import TracebackType

from collage.measure.artifact import Preparation
from collage.measure.builder import Built, build_all
from collage.measure.faults import Failure, is_scarcity
from collage.measure.host_lock import timing
from collage.measure.job import Job
from collage.measure.runner import Measurement, Runner
from collage.progress import Reporter
from collage.runtime.device_info import DeviceInfo
from collage.runtime.threads import default_threads


class Workers(ABC):
    """Builds many candidates at a time; times one job at a time on each host."""

    @property
    @abstractmethod
    def builds(self) -> int:
        """How many candidates are built at a time."""

    @abstractmethod
    def build(self, preparations: Iterable[Preparation]) -> list[Built]:
        """The artifact of each preparation, in their order, or why there is none. An iterator prepares the next ones
        while others are built.
        """

    @abstractmethod
    def measure(self, jobs: Iterable[Job], reporter: Reporter) -> Iterator[tuple[int, list[Measurement]]]:
        """The position of each job and a measurement of each of its artifacts, in the order in which they are done. An
        iterator makes a job when there is somebody for it.
        """

    @property
    def device(self) -> DeviceInfo | None:
        """What they time on; None is what this machine has."""
        return None

    def notes(self) -> list[str]:
        """What a reader of a plan has to know of who measured its candidates."""
        return []

    def close(self) -> None:  # noqa: B027 (nothing has to be done)
        """Nothing more is asked of them."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalWorkers(Workers):
    """Compiling processes and one timing process of this host.

    Parameters
    ----------
    threads
        Number of threads of the deployment.
    builds
        Processes that compile at the same time; None is one per processor.
    timeout_s
        Seconds after which a candidate that does not compile, load or answer counts as hanging.
    """

    def __init__(self, threads: int, builds: int | None = None, timeout_s: float = 60.0) -> None:
        self.threads = threads
        self._builds, self._timeout_s = builds or default_threads(), timeout_s
        self._runner = Runner(threads, timeout_s)

    @property
    def builds(self) -> int:
        return self._builds

    def start(self) -> None:
        """Have the timing process come up, which takes seconds, while something else is done; or take over one."""
        self._runner.take_over()
        self._runner.start()

    def build(self, preparations: Iterable[Preparation]) -> list[Built]:
        return build_all(preparations, self._builds, self._timeout_s)

    def measure(self, jobs: Iterable[Job], reporter: Reporter) -> Iterator[tuple[int, list[Measurement]]]:
        for number, job in enumerate(jobs):
            yield number, self._measured(job, reporter)

    def _measured(self, job: Job, reporter: Reporter) -> list[Measurement]:
        """While no other run on this host takes samples."""
        try:
            with timing(reporter):
                return self._runner.measure(job)
        except Exception as error:
            if not is_scarcity(error):
                raise
            return [Measurement.failed(Failure.of(error, "cannot be measured"))] * len(job.artifacts)

    def close(self) -> None:
        self._runner.close()
