"""What a job names travels with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.compile.build import Blob
from collage.measure.artifact import Artifact
from collage.measure.fleet.identity import Identity, difference, identity
from collage.measure.fleet.parcel import pack, passing_files, unpack
from collage.measure.job import Job
from collage.measure.protocol import Protocol


def job(folder: Path) -> Job:
    folder.mkdir()

    def file(name: str, content: str = "") -> str:
        path = folder / name
        path.write_text(content or name)
        return str(path)

    warm_up = Artifact(file("probe.so"), weights=(file("input.npy"),), blobs=(Blob("p", file("p.blob"), "e", {}),))
    one = Artifact(
        file("one.so"), weights=(file("w.npy"),), blobs=(Blob("b", file("b.blob"), "e", {}),), warm_up=warm_up
    )
    same = replace(one, library=file("same.so", "one.so"))
    return Job((one, same), (file("x.npy"),), (file("y.npy"),), Protocol(), 1)


def contents(job: Job) -> list[str]:
    one, same = job.artifacts
    assert one.warm_up is not None
    paths = [one.library, same.library, *one.weights, one.blobs[0].path, one.warm_up.library, *job.inputs]
    return [Path(path).read_text() for path in (*paths, *job.expected, one.warm_up.blobs[0].path)]


def test_it_is_the_same_job_elsewhere(tmp_path: Path) -> None:
    here = job(tmp_path / "here")
    there = tmp_path / "there"
    there.mkdir()
    parcel = pack(here)
    moved = unpack(parcel, there)
    assert contents(moved) == contents(here)
    assert moved.artifacts[0].library == moved.artifacts[1].library, "equal files are one"
    assert moved.artifacts[0].library.endswith(".so")
    assert unpack(parcel, there) == moved


def test_only_warm_ups_stay(tmp_path: Path) -> None:
    parcel = pack(job(tmp_path / "here"))
    kept = {parcel.files[name].decode() for name in set(parcel.files) - passing_files(parcel)}
    assert kept == {"probe.so", "input.npy", "p.blob"}


def test_a_machine_is_like_itself_and_says_in_what_another_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.measure.fleet.identity.available_backends", lambda *_: [ONNXRuntimeBackend()])
    ours = identity()
    assert ours.backends and difference(ours, identity()) == ""
    assert difference(ours, replace(ours, host="another", backends={**ours.backends, "more": "1"})) == ""
    assert difference(ours, replace(ours, fingerprint="cpu-x")).startswith("its processor is cpu-x, not cpu-")
    assert "it has tvm 0.1, not" in difference(ours, replace(ours, versions={**ours.versions, "tvm": "0.1"}))
    name = next(iter(ours.backends))
    assert f"its {name} is missing, not" in difference(ours, Identity(ours.host, ours.fingerprint, ours.versions, {}))
