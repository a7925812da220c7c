"""Helpers find modules where the process that started them does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collage.measure.helper import command


def test_a_file_in_the_current_folder_hides_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a model that somebody calls openvino.so does, whose loading fails."""
    (tmp_path / "msgspec.py").write_text("raise ImportError('this is no package')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "reports.py").write_text("import msgspec\nprint(msgspec.__version__)\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    done = subprocess.run(
        command("reports", "tvm_ffi"), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
