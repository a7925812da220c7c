"""MeasuredEstimator: the cost of a candidate is its measured latency on the device (RFC 0062, "CostEstimator").

It takes workloads in batches: it looks up records, builds in parallel, times one candidate at a time and records at
once. An interrupted run therefore has everything on disk that it measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from types import TracebackType

from collage.arrays import write_arrays
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Samples, Workload, device_kind, working_set_of
from collage.errors import CodegenError
from collage.graph.from_relax import read_graph
from collage.measure.artifact import Artifact, Preparation, prepare, prewarm
from collage.measure.builder import Built
from collage.measure.check import WRONG, wrong_numbers
from collage.measure.conditions import Conditions, disturbance_notes
from collage.measure.faults import Failure, MachineFault, blame_of, is_scarce, is_scarcity
from collage.measure.host import measured_on
from collage.measure.job import Job
from collage.measure.probe import build_probes, self_contained
from collage.measure.protocol import Protocol, candidate_protocol
from collage.measure.reference import ReferenceRun
from collage.measure.runner import Measurement
from collage.measure.workers import LocalWorkers, Workers
from collage.progress import Reporter
from collage.records import Record, RecordDatabase, key_of
from collage.runtime.device_info import describe_device, is_host
from collage.runtime.threads import default_threads
from estimators.cached import CachedEstimator

Alternatives = list[Workload]


class MeasuredEstimator(CostEstimator):
    """Measures what the records do not hold.

    Parameters
    ----------
    records
        A database or the path of one; None is the default one in the user's cache folder.
    protocol
        How to time; None is the default of the backends' device (`collage.measure.protocol`).
    build_jobs
        Processes that compile at the same time; None is one per processor.
    timeout_s
        Seconds after which a candidate that does not compile, load or answer is Invalid; what it waits for a processor
        does not count.
    reporter
        Shows progress.
    workers
        Who builds and times; None is processes of this host. With others, `build_jobs` and `timeout_s` are theirs.
    """

    #: Of the session that is open.
    _bench: _Bench | None = None

    def __init__(
        self,
        records: RecordDatabase | str | os.PathLike[str] | None = None,
        protocol: Protocol | None = None,
        build_jobs: int | None = None,
        timeout_s: float = 60.0,
        reporter: Reporter | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.records = records
        self.protocol: Protocol | None = protocol
        self.build_jobs = build_jobs
        self.timeout_s = timeout_s
        self.reporter = reporter
        self.workers = workers

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        return self.with_params(
            records=records if self.records is None else self.records, reporter=self.reporter or reporter
        )

    def on(self, workers: Workers) -> CostEstimator:
        return self.with_params(workers=workers)

    @property
    def uses_device(self) -> bool:
        return True

    @contextmanager
    def session(self) -> Iterator[None]:
        before = self._bench
        with self._new_bench() as self._bench:
            try:
                yield
            finally:
                self._bench = before

    def _new_bench(self) -> _Bench:
        return _Bench(self.workers, self.build_jobs, self.timeout_s)

    @cached_property
    def _conditions(self) -> list[Conditions]:
        """What the machine was like during every measurement of this instance."""
        return []

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        with ExitStack() as stack:
            records = self.records
            if not isinstance(records, RecordDatabase):
                records = stack.enter_context(RecordDatabase(records))
            elsewhere = None if self.workers is None else self.workers.device
            where = elsewhere or describe_device(device_kind(workloads))
            protocol = self.protocol or candidate_protocol(where, working_set_of(workloads))
            bench = self._bench or stack.enter_context(self._new_bench())
            device = _DeviceEstimator(records, protocol, self.reporter or Reporter(), bench, self._conditions)
            return CachedEstimator(records, fallback=device, protocol=protocol, device=elsewhere).estimate(workloads)

    def notes(self, workloads: Collection[Workload]) -> list[str]:
        """How disturbed the machine was by others while it measured, and who else measured."""
        return [*disturbance_notes(self._conditions), *(self.workers.notes() if self.workers is not None else ())]


class _Bench:
    """What is kept from measurement to measurement: who builds and times, of which a process takes seconds to come up,
    and the warm-ups.

    Attributes
    ----------
    warm_ups
        Backend -> its warm-up; absent where it was not built yet, None where it cannot be built.
    """

    def __init__(self, others: Workers | None, build_jobs: int | None, timeout_s: float) -> None:
        self.others = others
        self.build_jobs = build_jobs
        self.timeout_s = timeout_s
        self.warm_ups: dict[str, Artifact | None] = {}
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._local: LocalWorkers | None = None

    @property
    def folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="collage-")))
        return self._folder

    def workers(self, threads: int) -> Workers:
        """Those of others; where there are none, of this host, with warm-ups for this number of threads."""
        if self.others is not None:
            return self.others
        if self._local is not None and self._local.threads != threads:
            self.close()
        if self._local is None:
            self._local = LocalWorkers(threads, self.build_jobs, self.timeout_s)
            self._stack.enter_context(self._local)
        self._local.start()
        return self._local

    def close(self) -> None:
        self._stack.close()
        self._folder, self._local = None, None
        self.warm_ups.clear()

    def __enter__(self) -> _Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _DeviceEstimator(CostEstimator):
    """Measures everything it is asked for, and records it."""

    def __init__(
        self,
        records: RecordDatabase,
        protocol: Protocol,
        reporter: Reporter,
        bench: _Bench,
        conditions: list[Conditions],
    ) -> None:
        self.records = records
        self.protocol: Protocol = protocol
        self.reporter = reporter
        self.bench = bench
        self.conditions = conditions
        self._elsewhere = None if bench.others is None else bench.others.device
        self._device = cache(describe_device)

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.records.require_writable()
        groups: dict[tuple[str, int], Alternatives] = {}
        for workload in workloads:
            groups.setdefault((workload.structure, workload.threads), []).append(workload)
        self.reporter.stage("measuring", len(workloads))
        costs: dict[Workload, Cost] = {}
        ordered = sorted(groups.values(), key=lambda alternatives: len(alternatives[0].operators))
        workers = self.bench.workers(workloads[0].threads)
        try:
            warm_ups = self._warm_ups(workloads)
            for batch in _batches(ordered, 8 * workers.builds):
                costs.update(self._measure_batch(batch, workers, warm_ups))
            for alternatives in ordered:  # alone, now that the files of the others are gone
                if again := [w for w in alternatives if costs[w].is_unknown and is_scarce(costs[w].reason)]:
                    costs.update(self._measure_batch([again], workers, warm_ups))
        except (OSError, MachineFault) as error:
            if isinstance(error, OSError) and not is_scarcity(error):
                raise
            costs = {w: Cost.unknown(f"cannot be measured: {error}") for w in workloads} | costs
        unknown = [costs[w].reason for w in workloads if costs[w].is_unknown]
        if unknown:
            self.reporter.note(f"{len(unknown)} candidates could not be measured; of the first: {unknown[0]}")
        return [costs[w] for w in workloads]

    def _warm_ups(self, workloads: Sequence[Workload]) -> Mapping[str, Artifact | None]:
        """Name of each CPU backend -> its probe; one that has none is timed as its threads happen to be, and told.

        Raises
        ------
        MachineFault
            The machine is to blame that a probe was not built: candidates would be timed in other conditions.
        """
        if self._elsewhere is not None:  # it wakes its threads by a call of the candidate itself
            return {}
        known = self.bench.warm_ups
        backends = {w.backend.name: w.backend for w in workloads if is_host(w.backend.device)}
        new = [backend for name, backend in backends.items() if name not in known]
        folder = self.bench.folder / f"warm-ups{len(known)}"
        jobs = self.bench.build_jobs or default_threads()
        probes = build_probes(new, workloads[0].threads, folder, jobs, self.bench.timeout_s)
        for (name, _), built in probes.items():
            if isinstance(built, Artifact):
                (known[name],) = self_contained([built], folder)
            elif built.blame == "machine":
                raise MachineFault(built.reason)
            else:
                known[name] = None
                self.reporter.note(f"{name} is timed without a warm-up before each sample: {built}")
        return known

    def _measure_batch(
        self, batch: list[Alternatives], workers: Workers, warm_ups: Mapping[str, Artifact | None]
    ) -> dict[Workload, Cost]:
        """Build all of them, and time alternatives together; record at once what is known."""
        costs: dict[Workload, Cost] = {}
        asked: list[Mapping[Workload, Artifact]] = []
        with tempfile.TemporaryDirectory(prefix="collage-") as name:
            folder = Path(name)
            built = self._build(batch, folder, workers)

            def jobs() -> Iterator[Job]:
                for number, alternatives in enumerate(batch):
                    made = {workload: built[workload] for workload in alternatives}
                    failed = {w: Measurement.failed(m) for w, m in made.items() if isinstance(m, Failure)}
                    costs.update(self._record(failed))
                    self.reporter.step(_label(alternatives), len(failed))
                    ready = {
                        w: replace(m, warm_up=warm_ups.get(w.backend.name))
                        for w, m in made.items()
                        if isinstance(m, Artifact)
                    }
                    if ready:
                        try:
                            job = self._job(ready, _samples(next(iter(ready))), folder / f"data{number}")
                        except Exception as error:
                            costs.update(self._record(_prevented(ready, error)))
                            self.reporter.step(_label(alternatives), len(ready))
                        else:
                            asked.append(ready)
                            yield job

            for number, measured in workers.measure(jobs(), self.reporter):
                ready = asked[number]
                if any(m.reason.startswith(WRONG) for m in measured):
                    measured = self._by_plain_kernels(ready, measured, workers, folder / f"plain{number}")
                costs.update(self._record(dict(zip(ready, measured, strict=True))))
                self.reporter.step(_label(ready), len(ready))
        return costs

    def _build(self, batch: list[Alternatives], folder: Path, workers: Workers) -> dict[Workload, Built]:
        """The artifact of each workload, or why there is none."""
        self.reporter.step("building", 0)
        failed: dict[Workload, Built] = {}
        prepared: list[Workload] = []
        workloads = [w for alternatives in batch for w in alternatives]
        try:
            prewarm(workloads)
        except Exception as error:  # `prepare` says which candidate is wrong, and why
            self.reporter.note(f"not compiled together: {type(error).__name__}: {error}")

        def preparations() -> Iterator[Preparation]:
            for number, workload in enumerate(workloads):
                try:
                    preparation = prepare(workload, folder / str(number))
                except CodegenError as error:
                    failed[workload] = Failure(str(error), blame_of(error))
                except Exception as error:  # a defect of one backend costs its candidate, not the run (Invariant 5)
                    reason = f"cannot be prepared: {type(error).__name__}: {error}"
                    failed[workload] = Failure(reason, blame_of(error))
                else:
                    prepared.append(workload)
                    yield preparation

        built = workers.build(preparations())
        return failed | dict(zip(prepared, built, strict=True))

    def _by_plain_kernels(
        self, alternatives: Mapping[Workload, Artifact], measured: list[Measurement], workers: Workers, folder: Path
    ) -> list[Measurement]:
        """What is measured where one has wrong numbers: the reference itself is checked before that is believed."""
        one = next(iter(alternatives))
        try:
            samples = _samples(one)
            plain = ReferenceRun(one.module, read_graph(one.module), one.threads, samples.inputs, scheduled=False)
            if wrong_numbers(list(samples.outputs), plain.outputs, self.protocol.tolerance) is None:
                return measured
            self.reporter.note(
                f"the reference of {one.label.partition(' ')[2]} was wrong: plain kernels are the reference now"
            )
            job = self._job(alternatives, Samples(samples.inputs, tuple(plain.outputs)), folder)
        except Exception as error:
            return list(_prevented(alternatives, error).values())
        ((_, again),) = workers.measure([job], self.reporter)
        return again

    def _job(self, alternatives: Mapping[Workload, Artifact], samples: Samples, folder: Path) -> Job:
        folder.mkdir()
        one = next(iter(alternatives))
        return Job(
            artifacts=tuple(alternatives.values()),
            inputs=write_arrays(samples.inputs, folder, "input"),
            expected=write_arrays(samples.outputs, folder, "expected"),
            protocol=self.protocol,
            threads=one.threads,
            device=one.backend.device,
        )

    def _record(self, measured: Mapping[Workload, Measurement]) -> dict[Workload, Cost]:
        """Turn measurements into costs that are on disk before the next ones start. What the machine is to blame for
        says nothing about a candidate, and is not recorded.
        """
        costs = {workload: measurement.cost for workload, measurement in measured.items()}
        self.conditions.extend(m.conditions for m in measured.values() if m.valid)
        told = {w: m for w, m in measured.items() if not costs[w].is_unknown}
        if told:
            self.records.put_many([self._record_of(workload, m, costs[workload]) for workload, m in told.items()])
        return costs

    def _record_of(self, workload: Workload, measurement: Measurement, cost: Cost) -> Record:
        device = self._elsewhere or self._device(workload.backend.device)
        return Record.of(
            key_of(workload, device, self.protocol),
            cost,
            timings=measurement.samples,
            label=workload.label,
            operators=workload.operators,
            description=workload.description,
            device=measured_on(device, measurement.host),
            conditions=measurement.recorded_conditions,
        )


def _prevented(workloads: Iterable[Workload], error: Exception) -> dict[Workload, Measurement]:
    """What it means for them that an error came up before they were timed. Raises it where no machine is to blame."""
    if not is_scarcity(error):
        raise error
    return {workload: Measurement.failed(Failure.of(error, "cannot be measured")) for workload in workloads}


def _label(workloads: Iterable[Workload]) -> str:
    return next(iter(workloads)).label.partition(" ")[2]


def _samples(workload: Workload) -> Samples:
    if workload.samples is not None:
        return workload.samples()
    graph = read_graph(workload.module)
    run = ReferenceRun(workload.module, graph, workload.threads)
    return Samples(tuple(run.inputs), tuple(run.outputs))


def _batches(groups: list[Alternatives], size: int) -> Iterator[list[Alternatives]]:
    """Groups in runs of about `size` workloads."""
    batch: list[Alternatives] = []
    for alternatives in groups:
        batch.append(alternatives)
        if sum(map(len, batch)) >= size:
            yield batch
            batch = []
    if batch:
        yield batch
