"""The catalogue of CUTLASS's kernels: what it says of a kernel, and where it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gpu.catalogue import machine_code, rows_of


@pytest.mark.parametrize(("status", "expected"), [(0, "HMMA.16816\n"), (1, None)])
def test_a_disassembler_that_fails_says_nothing_of_a_kernel(
    status: int, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "cuobjdump"  # without nvdisasm it writes a heading, and exits with 1
    tool.write_text(f"#!/bin/sh\necho HMMA.16816\nexit {status}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine_code(tmp_path / "kernel.so") == expected


def test_kernels_that_have_a_row_are_known(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    assert rows_of(rows, "sm_90a") == rows_of(None, "sm_90a") == {}
    written = [{"kernel": name, "arch": arch} for name, arch in (("a", "sm_90a"), ("b", "sm_80"), ("c", "sm_90a"))]
    rows.write_text("".join(json.dumps(row) + "\n" for row in written))
    assert list(rows_of(rows, "sm_90a")) == ["a", "c"]
