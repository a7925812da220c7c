"""Linking: what an executable carries is in the library as it is, whatever the linker can do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.support import cc

import collage.runtime
from tests.collage.runtime.conftest import SHAPE, compiled, expected


def assert_runs(path: Path) -> None:
    a, b = np.ones(SHAPE, np.float32), np.full(SHAPE, 2, np.float32)
    for result, right in zip(collage.runtime.load(path)(a, b), expected(a, b), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="other linkers have no format for plain bytes")
def test_no_compiler_sees_what_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm.runtime.module as module

    asked: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(before, name)

    before = module._ffi_api
    monkeypatch.setattr(module, "_ffi_api", Watched())
    compiled("mixed").export(tmp_path / "model.so")
    monkeypatch.undo()
    assert asked and "ModulePackImportsToLLVM" not in asked
    assert_runs(tmp_path / "model.so")


def test_a_library_is_the_same_whenever_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    executable = compiled("engines")
    executable.export("model.so")
    executable.export(tmp_path / "elsewhere" / "another.so")
    assert Path("model.so").read_bytes() == (tmp_path / "elsewhere" / "another.so").read_bytes()
    assert_runs(tmp_path / "model.so")


def test_a_linker_that_takes_object_files_only_gets_those(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, refused = cc.create_shared, []

    def objects_only(path: str, objects: Sequence[str], options: Sequence[str], **more: Any) -> None:
        if any("format=binary" in option for option in options):
            refused.append(path)
            raise RuntimeError("unknown option: --format")
        link(path, objects, options, **more)

    monkeypatch.setattr(cc, "create_shared", objects_only)
    compiled("engines").export(tmp_path / "model.so")
    assert bool(refused) == (sys.platform == "linux")
    assert_runs(tmp_path / "model.so")
