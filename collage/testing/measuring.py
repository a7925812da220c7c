"""What measuring finds of candidates, one by one: the builder and the timing process that costs are measured with.

Crashes and hangs of a backend are then results, as they are in a tuning run. Latencies are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Protocol

import numpy as np

from collage.arrays import write_arrays
from collage.cost.estimator import Samples, Workload
from collage.errors import CodegenError
from collage.graph.candidates import CandidatePartition
from collage.measure.artifact import Artifact, Preparation, prepare
from collage.measure.builder import Built, build_all
from collage.measure.faults import Failure
from collage.measure.job import Job
from collage.measure.protocol import Protocol as MeasuringProtocol
from collage.measure.protocol import candidate_protocol
from collage.measure.runner import Measurement, Runner
from collage.measure.workloads import WorkloadFactory
from collage.runtime.device_info import describe_device

_THREADS = 1
#: How the reason begins of a candidate that a backend refused with a CodegenError.
REFUSED = "refused: "


class Measure(Protocol):
    """What `trials` gives: the measurement of each candidate; `expected` replaces the reference's samples."""

    def __call__(
        self,
        factory: WorkloadFactory,
        candidates: Sequence[CandidatePartition],
        expected: Mapping[CandidatePartition, Samples] | None = None,
    ) -> dict[CandidatePartition, Measurement]: ...


@contextmanager
def trials(folder: Path, timeout_s: float) -> Iterator[Measure]:
    """Builds and runs candidates as long as the context lasts, in one timing process.

    Parameters
    ----------
    folder
        For libraries, blobs and arrays.
    timeout_s
        Seconds after which a candidate that does not compile or answer has failed.
    """
    with Runner(_THREADS, timeout_s) as runner:
        folders = (folder / f"trial{number}" for number in count())

        def measure(
            factory: WorkloadFactory,
            candidates: Sequence[CandidatePartition],
            expected: Mapping[CandidatePartition, Samples] | None = None,
        ) -> dict[CandidatePartition, Measurement]:
            workloads = {c: factory.of(c) for c in candidates}
            built = _build(workloads, folders, timeout_s)
            results: dict[CandidatePartition, Measurement] = {}
            for candidate, artifact in built.items():
                if isinstance(artifact, Artifact):
                    samples = (expected or {}).get(candidate) or samples_of(workloads[candidate])
                    results[candidate] = runner.measure(_job(artifact, samples, next(folders)))[0]
                else:
                    results[candidate] = Measurement.failed(artifact)
            return results

        yield measure


def _build(
    workloads: Mapping[CandidatePartition, Workload], folders: Iterator[Path], timeout_s: float
) -> dict[CandidatePartition, Built]:
    """The artifact of each candidate, or why there is none."""
    prepared: dict[CandidatePartition, Preparation] = {}
    refused: dict[CandidatePartition, Built] = {}
    for candidate, workload in workloads.items():
        try:
            prepared[candidate] = prepare(workload, next(folders))
        except CodegenError as error:
            refused[candidate] = Failure(f"{REFUSED}{error}")
    return {**refused, **dict(zip(prepared, build_all(list(prepared.values()), 2, timeout_s), strict=True))}


def _job(artifact: Artifact, samples: Samples, folder: Path) -> Job:
    folder.mkdir(parents=True)
    inputs = write_arrays(samples.inputs, folder, "input")
    expected = write_arrays(samples.outputs, folder, "expected")
    return Job((artifact,), inputs, expected, quick(artifact.device), _THREADS, artifact.device)


def quick(device: str) -> MeasuringProtocol:
    """One sample of each candidate: whether it runs, and right."""
    protocol = candidate_protocol(describe_device(device))
    return replace(protocol, weights="hot", warmup=1, min_samples=1, max_samples=1, time_limit_s=0.0)


def is_refusal(measurement: Measurement) -> bool:
    """Whether the backend said that it cannot compile the candidate, before or while compiling it."""
    return measurement.reason.startswith((REFUSED, "does not compile: "))


def samples_of(workload: Workload) -> Samples:
    """Real inputs and right outputs."""
    assert workload.samples is not None
    return workload.samples()


def shifted(samples: Samples, tolerance: float) -> Samples:
    """The same inputs, with outputs that a right candidate misses by twice its tolerance: this share of their scale, or
    half a hundredth of it.
    """
    return Samples(samples.inputs, tuple(_shifted(array, max(0.01, 2 * tolerance)) for array in samples.outputs))


def _shifted(array: np.ndarray, share: float) -> np.ndarray:
    if not np.issubdtype(array.dtype, np.floating):
        return np.logical_not(array) if array.dtype == bool else array + 1
    scale = float(np.abs(array[np.isfinite(array)]).max(initial=1e-3))
    shifted_array: np.ndarray = (array + share * scale).astype(array.dtype)
    return shifted_array
