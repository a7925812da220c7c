"""What emulated engines choose is kept out of the user's cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.runtime.cuda import choices


@pytest.fixture(autouse=True)
def choices_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where engines remember their choices during one test."""
    monkeypatch.setattr(choices, "folder_of", lambda engine: tmp_path / "remembered" / engine)
    return tmp_path / "remembered"
