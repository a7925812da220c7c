"""Fleet: the workers of a cluster behind the interface of `Workers`; this host takes over if the cluster is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from collage.errors import CollageError
from collage.measure.artifact import Preparation
from collage.measure.builder import Built
from collage.measure.faults import Failure
from collage.measure.fleet import remote
from collage.measure.fleet.cluster import Cluster
from collage.measure.fleet.dispatch import Abandoned, Crowd, Member, Pending, dispatch
from collage.measure.fleet.drift import Drift, has_drifted
from collage.measure.fleet.parcel import pack
from collage.measure.fleet.remote import Taken
from collage.measure.job import Job
from collage.measure.runner import Measurement
from collage.measure.workers import LocalWorkers, Workers
from collage.progress import Reporter
from collage.runtime.device_info import is_host
from collage.runtime.threads import default_threads

Question = TypeVar("Question")

#: How often what a machine is to blame for is tried on another one.
_ELSEWHERE = 2
_OFTEN = Failure("its workers were lost again and again", "machine")


class Fleet(Workers):
    """Builds and times by the workers at a Dask scheduler's address.

    Parameters
    ----------
    timeout_s
        Seconds after which a candidate that does not compile, load or answer counts as hanging.
    patience_s
        Seconds in which there may be no worker at all; after that this host does the rest.
    silence_s
        Seconds after which a worker that is not heard counts as lost.

    Raises
    ------
    CollageError
        Nobody answers at the address, or Dask is not installed.
    """

    def __init__(
        self,
        address: str,
        reporter: Reporter,
        timeout_s: float = 60.0,
        patience_s: float = 60.0,
        silence_s: float = 30.0,
    ) -> None:
        self.timeout_s, self.patience_s = timeout_s, patience_s
        self.reporter = reporter
        self._cluster = Cluster(address, reporter, silence_s)
        self._drift = Drift()
        self._timed: Counter[str] = Counter()
        self._lost = 0
        self._local: LocalWorkers | None = None
        self._quarantined: dict[str, str] = {}

    @property
    def builds(self) -> int:
        return max(default_threads(), sum(m.slots for m in self._cluster.members(times=False).values()))

    def build(self, preparations: Iterable[Preparation]) -> list[Built]:
        asked: list[Preparation] = []
        unique: list[Preparation] = []
        first: dict[str, int] = {}

        def distinct() -> Iterator[Preparation]:
            """Alternatives that are called in the same way have one library (`collage.measure.builder.build_all`)."""
            for preparation in preparations:
                asked.append(preparation)
                if preparation.module_json not in first:
                    first[preparation.module_json] = len(unique)
                    unique.append(preparation)
                    yield preparation

        built: dict[int, Built] = {}
        crowd = _Builders(self._cluster, self.timeout_s)
        for number, answer, lost in self._asked(crowd, distinct(), self._built_here):
            self._lost += lost
            built[number] = _written(unique[number], _OFTEN if answer is None else answer)
        results = [built[first[p.module_json]] for p in asked]
        return [
            replace(p.artifact, library=b.library) if not isinstance(b, Failure) else b
            for p, b in zip(asked, results, strict=True)
        ]

    def measure(self, jobs: Iterable[Job], reporter: Reporter) -> Iterator[tuple[int, list[Measurement]]]:
        sizes: list[int] = []

        def counted() -> Iterator[Job]:
            for job in jobs:
                sizes.append(len(job.artifacts))
                yield job

        def here(job: Job) -> Taken:
            ((_, found),) = self._here(job.threads).measure([job], reporter)
            return Taken(found, 0.0)

        crowd = _Timers(self._cluster, self.timeout_s, self._drift, self._quarantine)
        for number, taken, lost in self._asked(crowd, counted(), here):
            self._lost += lost
            found = [Measurement.failed(_OFTEN)] * sizes[number] if taken is None else taken.measurements
            self._timed.update(m.host for m in found[:1])
            yield number, [replace(m, lost=lost) for m in found]

    def notes(self) -> list[str]:
        hosts = ", ".join(f"{count:,} on {host or 'this one'}" for host, count in self._timed.most_common())
        found = [f"a fleet timed sub-graphs, by hosts: {hosts}"] if self._timed else []
        if self._lost:
            found.append(f"{self._lost} times a worker was lost with what it was asked, and another one was asked")
        found += [f"the host {host} was put in quarantine: {reason}" for host, reason in self._quarantined.items()]
        others = Counter(
            r for a, r in self._cluster.faults.items() if self._cluster.host_of(a) not in self._quarantined
        )
        found += [f"{count} workers of the fleet were not asked: {reason}" for reason, count in others.items()]
        if self._local is not None:
            found.append("the fleet was lost: this host did the rest")
        return found

    def close(self) -> None:
        self._cluster.release()
        self._cluster.close()
        if self._local is not None:
            self._local.close()

    def _asked(
        self, crowd: Crowd[Question, _Answer], questions: Iterable[Question], here: Callable[[Question], _Answer]
    ) -> Iterator[tuple[int, _Answer | None, int]]:
        """What the fleet answers, and this host where there is no fleet any more."""
        rest: Iterator[tuple[int, Question]] = iter(enumerate(questions))
        if self._local is None:
            try:
                yield from dispatch(crowd, (question for _, question in rest), self.patience_s)
                return
            except Abandoned as abandoned:
                rest = abandoned.rest
                self.reporter.note(f"no worker at {self._cluster.address}: this host does the rest")
        for number, question in rest:
            yield number, here(question), 0

    def _here(self, threads: int) -> LocalWorkers:
        if self._local is None or self._local.threads != threads:
            if self._local is not None:
                self._local.close()
            self._local = LocalWorkers(threads, timeout_s=self.timeout_s)
        return self._local

    def _built_here(self, preparation: Preparation) -> bytes | Failure:
        (built,) = self._here(preparation.threads).build([preparation])
        return built if isinstance(built, Failure) else Path(built.library).read_bytes()

    def _quarantine(self, member: Member, ratio: float) -> None:
        reason = f"its canary takes {ratio:.2f} times as long as on the others"
        self._quarantined[self._cluster.host_of(member.address)] = reason
        self._cluster.set_aside(member.address, reason)
        self._drift.forget([member.address])


_Answer = TypeVar("_Answer")


class _Builders(Crowd[Preparation, "bytes | Failure"]):
    """Workers that build: as many candidates at a time as each has threads."""

    def __init__(self, cluster: Cluster, timeout_s: float) -> None:
        self._cluster, self._timeout_s = cluster, timeout_s

    def members(self) -> Mapping[str, Member]:
        return self._cluster.members(times=False)

    def expects(self) -> bool:
        return self._cluster.expects(times=False)

    def ask(self, member: Member, question: Preparation, done: Callable[[], None]) -> Pending[bytes | Failure]:
        return self._cluster.ask(member, remote.build, (question, self._timeout_s), done)

    def refuse(self, member: Member, answer: bytes | Failure, refused: int) -> bool:
        fault = answer.reason if isinstance(answer, Failure) and answer.blame == "machine" else ""
        return self._cluster.notice(member.address, fault) and refused < _ELSEWHERE


class _Timers(Crowd[Job, Taken]):
    """Workers that time: one job at a time on each host."""

    def __init__(
        self, cluster: Cluster, timeout_s: float, drift: Drift, quarantine: Callable[[Member, float], None]
    ) -> None:
        self._cluster, self._timeout_s = cluster, timeout_s
        self._drift, self._quarantine = drift, quarantine

    def members(self) -> Mapping[str, Member]:
        return self._cluster.members(times=True)

    def expects(self) -> bool:
        return self._cluster.expects(times=True)

    def ask(self, member: Member, question: Job, done: Callable[[], None]) -> Pending[Taken]:
        return self._cluster.ask(member, remote.measure, (pack(question), self._timeout_s), done, times=True)

    def refuse(self, member: Member, answer: Taken, refused: int) -> bool:
        ratio = self._drift.add(member.address, answer.canary)
        if has_drifted(ratio):
            self._quarantine(member, ratio)
            return True
        fault = next((m.reason for m in answer.measurements if not m.valid and m.blame == "machine"), "")
        return self._cluster.notice(member.address, fault) and refused < _ELSEWHERE


def _written(preparation: Preparation, answer: bytes | Failure) -> Built:
    """The artifact, whose library came as the content of a file."""
    if isinstance(answer, Failure):
        return answer
    path = Path(preparation.artifact.library)
    path.write_bytes(answer)
    path.chmod(0o755)
    return preparation.artifact


@contextmanager
def workers_at(address: str | None, reporter: Reporter, devices: Iterable[str] = ("cpu",)) -> Iterator[Workers | None]:
    """The workers of the cluster at an address; None without an address: who measures brings its own.

    Raises
    ------
    CollageError
        Nobody answers there, Dask is not installed, or a device is no processor.
    """
    if address is None:
        yield None
        return
    if not all(map(is_host, devices)):
        raise CollageError("workers build and time for processors only: leave --workers out for other devices")
    with closing(Fleet(address, reporter)) as fleet:
        yield fleet
