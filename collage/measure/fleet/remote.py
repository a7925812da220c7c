"""The functions that run in the workers of a cluster. Each gets all that it needs as arguments."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock

from collage.measure.artifact import Preparation, compile_artifact
from collage.measure.builder import run_all
from collage.measure.faults import Failure
from collage.measure.fleet.drift import canary_seconds
from collage.measure.fleet.parcel import Parcel, passing_files, unpack
from collage.measure.host import host_id
from collage.measure.host_lock import timing
from collage.measure.runner import Measurement, Runner
from collage.progress import Reporter


@dataclass(frozen=True)
class Taken:
    """What came of a job on a worker.

    Attributes
    ----------
    measurements
        Of its artifacts.
    canary
        Seconds of the canary, before or after it, whichever was faster.
    """

    measurements: Sequence[Measurement]
    canary: float


def build(preparation: Preparation, timeout_s: float) -> bytes | Failure:
    """The library of a candidate, as the content of its file, or why there is none."""
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        library = str(Path(folder) / "candidate.so")
        here = replace(preparation, artifact=replace(preparation.artifact, library=library))
        (built,) = run_all(compile_artifact, [here], 1, timeout_s)
        return built if isinstance(built, Failure) else Path(built.library).read_bytes()


def measure(parcel: Parcel, timeout_s: float) -> Taken:
    """Time a job, while nobody else on this host takes samples.

    Raises
    ------
    CollageError
        No timing process comes up here.
    """
    return _bench_of(os.getpid(), parcel.job.threads, timeout_s).measure(parcel)


def release() -> None:
    """End the timing processes of this worker, and remove their files; they come back when they are needed."""
    _bench_of.cache_clear()


@cache
def _bench_of(_process: int, threads: int, timeout_s: float) -> _Bench:
    """It stays from job to job: a timing process takes seconds to come up, and keeps its warm-ups."""
    return _Bench(threads, timeout_s)


class _Bench:
    """A timing process, and the files of its jobs."""

    def __init__(self, threads: int, timeout_s: float) -> None:
        self._runner = Runner(threads, timeout_s)
        self._files = tempfile.TemporaryDirectory(prefix="collage-")
        self._lock = Lock()

    def measure(self, parcel: Parcel) -> Taken:
        folder = Path(self._files.name)
        with self._lock, timing(Reporter()):
            try:
                job = unpack(parcel, folder)
                before = canary_seconds()
                found = self._runner.measure(job)
                canary = min(before, canary_seconds())
            finally:
                for name in passing_files(parcel):
                    (folder / name).unlink(missing_ok=True)
        host = host_id()
        return Taken([replace(measurement, host=host) for measurement in found], canary)
