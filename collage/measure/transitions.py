"""Transition costs: the time to leave a partition of one backend and enter one of another, measured per ordered pair.

The probe of the consumer b is timed in two cases: on the result of the probe of the producer a, and on the result of
its own. The transition from a to b is the difference. It has three causes: threads of another pool have to be woken,
those of a still run down, and the tensor lies in the caches of other cores. It is measured for tensors of several
sizes, interleaved over all producers, with the protocol of `collage.measure.protocol.transition_protocol`. The records
hold the latencies of the consumer, which are what was measured; differences, and their sign, are computed from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from collage.arrays import write_arrays
from collage.backends.base import Backend
from collage.cost.estimator import Workload
from collage.cost.transition import Pair, Transition, transitions_of
from collage.graph.from_relax import read_graph
from collage.measure.artifact import Artifact
from collage.measure.builder import Built
from collage.measure.faults import Failure
from collage.measure.host import measured_on
from collage.measure.host_lock import timing
from collage.measure.job import Job
from collage.measure.probe import Shape, build_probes, probe, probe_input, self_contained
from collage.measure.protocol import Protocol, transition_protocol
from collage.measure.reference import ReferenceRun
from collage.measure.runner import Runner
from collage.progress import Reporter
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, transition_key
from collage.runtime.device_info import describe_device
from collage.runtime.threads import default_threads

#: Of the tensors that pass, float32: 64 KiB, 512 KiB and 2 MiB. The larger they are, the fewer channels they have, so
#: that a probe takes a millisecond or two at most; a smaller one would leave engines on one thread.
SHAPES: tuple[Shape, ...] = ((1, 32, 16, 32), (1, 16, 64, 128), (1, 8, 128, 512))

#: Seconds for one probe to compile, or to answer.
_TIMEOUT_S = 60.0


def transition_costs(
    backends: Sequence[Backend], threads: int, records: RecordDatabase, reporter: Reporter, measure: bool = True
) -> dict[Pair, Transition]:
    """The transition of each ordered pair of different backends, from the records where they are there, else measured
    and recorded. Pairs that are not in the records are left out with `measure=False`, and so are those that cannot be
    measured, which are told.
    """
    if len(backends) < 2:
        return {}
    protocol = transition_protocol(backends[0].device)
    keys = _keys(backends, threads, protocol)
    known = records.costs(keys.values())
    missing = {(b, shape) for (_, b, shape), key in keys.items() if key not in known}
    if measure and missing:
        reporter.stage("measuring transitions", len(missing))
        _measure(backends, threads, protocol, keys, missing, records, reporter)
        known = records.costs(keys.values())
    latencies = {(a, b, _bytes(shape)): known[key] for (a, b, shape), key in keys.items() if key in known}
    return transitions_of(latencies)


def _keys(backends: Sequence[Backend], threads: int, protocol: Protocol) -> dict[tuple[str, str, Shape], RecordKey]:
    """(producer, consumer, shape) -> key, also of the same backend twice; backends that take no probe are left out."""
    device = describe_device(backends[0].device)
    keys = {}
    for shape in SHAPES:
        probes = {b: workload for b in backends if (workload := probe(b, threads, shape)) is not None}
        for a, b in product(probes, repeat=2):
            structure = digest_of(["transition", probes[a].structure, probes[b].structure])
            keys[a.name, b.name, shape] = transition_key(structure, a, b, device, threads, protocol)
    return keys


def _measure(
    backends: Sequence[Backend],
    threads: int,
    protocol: Protocol,
    keys: Mapping[tuple[str, str, Shape], RecordKey],
    missing: Collection[tuple[str, Shape]],
    records: RecordDatabase,
    reporter: Reporter,
) -> None:
    """Time every consumer and shape of which a pair is missing, with all producers; record what there is."""
    by_name = {backend.name: backend for backend in backends}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="collage-")))
        runner = stack.enter_context(Runner(threads, _TIMEOUT_S))
        runner.start()  # it comes up while references are computed: in this thread, since TVM lowers in one at a time
        expected: dict[str, tuple[np.ndarray, ...]] = {}
        for consumer, shape in missing:
            workload = probe(by_name[consumer], threads, shape)
            if workload is not None and workload.structure not in expected:
                expected[workload.structure] = _outputs(workload, probe_input(shape))
        built = build_probes(backends, threads, folder, default_threads(), _TIMEOUT_S, SHAPES)
        for problem in dict.fromkeys(failure.reason for failure in built.values() if isinstance(failure, Failure)):
            reporter.note(f"its transitions cannot be measured: {problem}")
        # Of each size one input, and so one loaded probe of each backend, for all consumers.
        fed_by = {shape: _giving(built, by_name, folder / f"{_bytes(shape)}", shape) for shape in SHAPES}
        for consumer, shape in sorted(missing):
            target, size = built[consumer, shape], _bytes(shape)
            reporter.step(f"to {consumer}, {size >> 10} KiB")
            if isinstance(target, Failure):
                continue
            place = folder / f"{consumer}-{size}"
            producers = fed_by[shape]
            workload = probe(by_name[consumer], threads, shape)
            assert workload is not None
            place.mkdir()
            job = Job(
                artifacts=tuple(replace(target, warm_up=producer, fed=True) for producer in producers.values()),
                inputs=write_arrays((probe_input(shape),), place, "input"),
                expected=write_arrays(expected[workload.structure], place, "expected"),
                protocol=protocol,
                threads=threads,
                device=by_name[consumer].device,
            )
            found = []
            with timing(reporter):
                measurements = runner.measure(job)
            for producer, measured in zip(producers, measurements, strict=True):
                label = f"transition {producer} -> {consumer}, {size >> 10} KiB"
                if not measured.valid:
                    reporter.note(f"{label}: {measured.reason}")
                    continue
                key = keys[producer, consumer, shape]
                found.append(
                    Record.of(
                        key,
                        measured.cost,
                        timings=measured.samples,
                        label=label,
                        description={"bytes": size},
                        device=measured_on(describe_device(by_name[consumer].device)),
                        conditions=measured.conditions.as_dict(),
                    )
                )
            records.put_many(found)
        runner.leave()  # to those who measure candidates


def _outputs(workload: Workload, given: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(ReferenceRun(workload.module, read_graph(workload.module), workload.threads, [given]).outputs)


def _giving(
    built: Mapping[tuple[str, Shape], Built], names: Collection[str], folder: Path, shape: Shape
) -> dict[str, Artifact]:
    """Name -> the probe of a shape as a producer; backends that have none are left out."""
    probes = {name: probe for name in names if isinstance(probe := built[name, shape], Artifact)}
    return dict(zip(probes, self_contained(probes.values(), folder, shape), strict=True))


def _bytes(shape: Shape) -> int:
    count = 4
    for extent in shape:
        count *= extent
    return count
