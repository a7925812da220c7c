"""A shared library that was cut off is found out before the loader kills the process."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from collage.runtime.library_file import is_cut_off


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
