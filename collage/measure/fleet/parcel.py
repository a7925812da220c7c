"""Parcel: a job with the files that it names, to be sent to another host.

Files are named by a digest of their content. Files that several jobs share, such as the warm-up of a backend, are
stored once on the other host, and the timing process loads them once.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from collage.measure.artifact import Artifact
from collage.measure.job import Job


@dataclass(frozen=True)
class Parcel:
    """A job whose paths are names of these files."""

    job: Job
    files: Mapping[str, bytes]


def pack(job: Job) -> Parcel:
    """The job with its files. Raises OSError where one cannot be read."""
    files: dict[str, bytes] = {}

    @cache
    def name_of(path: str) -> str:
        content = Path(path).read_bytes()
        name = hashlib.sha256(content).hexdigest()[:32] + Path(path).suffix
        files[name] = content
        return name

    return Parcel(_relocated(job, name_of), files)


def unpack(parcel: Parcel, folder: Path) -> Job:
    """The job, with its files in a folder. Raises OSError where they cannot be written."""
    for name, content in parcel.files.items():
        path = folder / name
        if not path.exists():
            partial = path.with_name(f".{name}")
            partial.write_bytes(content)
            os.replace(partial, path)
    return _relocated(parcel.job, lambda name: str(folder / name))


def passing_files(parcel: Parcel) -> set[str]:
    """The names of files that no other job will ask for: all but those of warm-ups."""
    kept: set[str] = set()
    for artifact in parcel.job.artifacts:
        if artifact.warm_up is not None:
            kept.update(_files_of(artifact.warm_up))
    return set(parcel.files) - kept


def _relocated(job: Job, where: Callable[[str], str]) -> Job:
    return replace(
        job,
        artifacts=tuple(_moved(artifact, where) for artifact in job.artifacts),
        inputs=tuple(map(where, job.inputs)),
        expected=tuple(map(where, job.expected)),
    )


def _moved(artifact: Artifact, where: Callable[[str], str]) -> Artifact:
    return replace(
        artifact,
        library=where(artifact.library),
        weights=tuple(map(where, artifact.weights)),
        blobs=tuple(replace(blob, path=where(blob.path)) for blob in artifact.blobs),
        warm_up=None if artifact.warm_up is None else _moved(artifact.warm_up, where),
    )


def _files_of(artifact: Artifact) -> Iterator[str]:
    yield artifact.library
    yield from artifact.weights
    yield from (blob.path for blob in artifact.blobs)
