"""Whether outputs can be written is known before the work begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.cli.options import require_writable
from collage.errors import CollageError


def test_new_files_old_files_and_new_folders_are_fine_and_nothing_is_left_behind(tmp_path: Path) -> None:
    old = tmp_path / "old.so"
    old.write_bytes(b"kept")
    require_writable({"--output": old, "--plan": tmp_path / "a" / "b" / "plan.json", "--report": None}, {})
    assert [p.name for p in tmp_path.iterdir()] == ["old.so"]
    assert old.read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/proc/model.so", "cannot be written"),  # a file system that takes no files, whoever asks
        ("/dev/full", "not a regular file"),
        ("FOLDER", "is a directory"),
        ("FOLDER/file/model.so", "is not a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error(path: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CollageError, match=f"--output .*{reason}|{reason}"):
        require_writable({"--output": Path(path.replace("FOLDER", str(tmp_path)))}, {})


def test_outputs_are_not_written_over_inputs_or_each_other(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_text("")
    with pytest.raises(CollageError, match="--output would overwrite the model"):
        require_writable({"--output": tmp_path / "x" / ".." / "model.onnx"}, {"the model": model})
    with pytest.raises(CollageError, match="--plan would overwrite --output"):
        require_writable({"--output": tmp_path / "a", "--plan": tmp_path / "a"}, {})
