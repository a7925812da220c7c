"""Targets of other machines: as the user writes them, what is compiled for them, and who links it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from collage.backends.base import Backend
from collage.backends.lowering import Linker
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm import target as targets
from collage.backends.tvm.backend import TVMBackend
from collage.backends.tvm.target import linker_of, parse_target, target_text
from collage.cost.estimator import Workload
from collage.errors import CollageError, PlanError
from collage.measure.artifact import compile_artifact, prepare
from collage.planned.data import PlanData
from tests.e2e.networks import convolution_relu

ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon,+crc"
#: `e_machine` of an ELF file for AArch64, and where it is.
_AARCH64, _MACHINE = 183, slice(18, 20)


def test_a_target_is_options_or_json_and_is_written_as_options() -> None:
    expected = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon", "+crc"]}
    assert parse_target(ARM) == expected
    assert target_text(expected) == ARM
    assert parse_target('{"kind": "llvm", "mcpu": "x86-64-v3"}') == {"kind": "llvm", "mcpu": "x86-64-v3"}
    assert parse_target("llvm -num-cores=4 -device=arm_cpu -mcpu=x86-64") == {
        "kind": "llvm",
        "num-cores": 4,
        "mcpu": "x86-64",
    }


@pytest.mark.parametrize(
    "text",
    ["", "cuda", "llvm aarch64", "llvm -mtriple", "llvm -number=five", "llvm -num-cores=x", "{", "[]", '{"kind": 1}'],
)
def test_what_is_no_target_is_one_line(text: str) -> None:
    with pytest.raises(CollageError, match=r"target|TVM cannot compile") as raised:
        parse_target(text)
    assert "\n" not in str(raised.value)


def test_who_links(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(targets, "which", lambda name: name if name in installed else None)
    arm = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu"}
    assert linker_of(arm) == Linker("aarch64-unknown-linux-gnu", "")
    assert linker_of(arm).suffix == ".tar"
    installed.add("aarch64-linux-gnu-gcc")
    assert linker_of(arm).command == "aarch64-linux-gnu-gcc" and linker_of(arm).suffix == ".so"
    installed.add("c++")
    assert linker_of({"kind": "llvm"}).command == "c++"


def test_files_that_cannot_be_linked_are_refused(tmp_path: Path) -> None:
    without, compiler = Linker("aarch64-linux-gnu", ""), Linker("aarch64-linux-gnu", "aarch64-linux-gnu-g++")
    without.require_able(tmp_path / "net.tar")
    compiler.require_able(tmp_path / "net.so")
    with pytest.raises(CollageError, match=r"no linker for aarch64-linux-gnu here \(such as aarch64-linux-gnu-g\+\+\)"):
        without.require_able(tmp_path / "net.so")
    with pytest.raises(CollageError, match=r"a library, OUT.so, or an archive of objects, OUT.tar"):
        compiler.require_able(tmp_path / "net.bin")


def test_a_candidate_is_compiled_for_another_processor(tmp_path: Path) -> None:
    backend = TVMBackend().on_board(parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"))
    assert backend is not None
    preparation = prepare(Workload.of_module(convolution_relu(), backend), tmp_path)
    preparation = type(preparation)(
        preparation.module_json,
        type(preparation.artifact)(str(tmp_path / "candidate.tar"), preparation.artifact.weights),
        backend,
        2,
    )
    compile_artifact(preparation, Linker("aarch64-linux-gnu", ""))
    with tarfile.open(tmp_path / "candidate.tar") as archive:
        contents = [file.read() for member in archive if (file := archive.extractfile(member)) is not None]
    assert contents and all(content[:4] == b"\x7fELF" for content in contents)
    assert {int.from_bytes(content[_MACHINE], "little") for content in contents} == {_AARCH64}


def test_a_board_is_part_of_what_tvm_is_set_to_and_engines_have_none() -> None:
    here, target = TVMBackend(tuning_records="folder"), parse_target(ARM)
    there: Backend | None = here.on_board(target)
    assert there is not None and there.configuration()["target"] == target
    assert (
        "target" not in here.configuration()
        and there.configuration()["tuning"] == TVMBackend().configuration()["tuning"]
    )
    assert ONNXRuntimeBackend().on_board(target) is None
    with pytest.raises(CollageError, match="--tune-trials"):
        TVMBackend(tune_trials=4, tuning_records="folder").on_board(target)


def test_the_file_of_a_plan_says_what_board_it_is_for(tmp_path: Path) -> None:
    from collage.api.plan import _loaded

    data = PlanData(network="n", choice="collage", threads=1, versions={"tvm": "0"}, partitions=(), target=ARM)
    there = _loaded("tvm", data, tmp_path / "plan.json").lowering(1)
    assert there is not None and there.linker is not None and there.linker.triple == "aarch64-linux-gnu"
    with pytest.raises(PlanError, match="onnxruntime has no runtime there"):
        _loaded("onnxruntime", data, tmp_path / "plan.json")
