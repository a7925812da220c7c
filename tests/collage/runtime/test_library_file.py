"""A shared library that was cut off, or is not ours, is found out before the loader maps it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import collage.runtime
from collage.errors import CompiledModelError
from collage.runtime.library_file import is_compiled_model, is_cut_off
from tests.collage.runtime.conftest import Models


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("library")
    (folder / "a.c").write_text("int table[2000] = {1}; int f(int i) { return table[i]; }\n")
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "compiling models needs a compiler, and so do its tests"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "a.so", folder / "a.c"], check=True)
    return (folder / "a.so").read_bytes()


def test_a_whole_library_is_whole(library: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(library)
    assert not is_cut_off(tmp_path / "a.so")


@pytest.mark.parametrize("share", [0.0005, 0.01, 0.1, 0.5, 0.9, 0.9999])
def test_every_beginning_of_a_library_is_cut_off(share: float, library: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(library[: max(5, int(share * len(library)))])
    assert is_cut_off(tmp_path / "a.so")


def test_a_library_without_its_section_table_is_judged_by_its_segments(library: bytes, tmp_path: Path) -> None:
    stripped = bytearray(library)
    stripped[0x28:0x30] = bytes(8)  # no section table: what `sstrip` leaves
    stripped[0x3C:0x3E] = bytes(2)
    (tmp_path / "whole.so").write_bytes(stripped)
    (tmp_path / "half.so").write_bytes(stripped[: len(stripped) // 2])
    assert not is_cut_off(tmp_path / "whole.so")
    assert is_cut_off(tmp_path / "half.so")


@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"not a library at all"])
def test_other_files_are_left_to_the_loader(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert not is_cut_off(tmp_path / "x")


def test_a_compiled_model_is_known(models: Models) -> None:
    assert is_compiled_model(models("openvino")) and is_compiled_model(models("tvm"))


@pytest.mark.parametrize("content", [b"", b"\x7fEL", b"not a library at all", b"\x7fELF\x02\x01" + bytes(58)])
def test_other_files_are_no_models(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    assert not is_compiled_model(tmp_path / "x")


def test_a_library_whose_tables_lead_nowhere_is_no_model(library: bytes, tmp_path: Path) -> None:
    spoilt = bytearray(library)
    spoilt[0x28:0x30] = b"\xff" * 7 + b"\x7f"
    (tmp_path / "x.so").write_bytes(spoilt)
    assert not is_compiled_model(tmp_path / "x.so")


def test_nothing_of_a_foreign_library_runs(tmp_path: Path) -> None:
    """Its initialiser would leave a file."""
    trace = tmp_path / "trace"
    (tmp_path / "a.c").write_text(
        "#include <stdio.h>\n"
        f'__attribute__((constructor)) static void begin(void) {{ fclose(fopen("{trace}", "w")); }}\n'
    )
    command = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-o", tmp_path / "a.so", tmp_path / "a.c"]
    subprocess.run(command, check=True)
    with pytest.raises(CompiledModelError, match="not a model compiled by Collage"):
        collage.runtime.load(tmp_path / "a.so")
    assert not trace.exists()
