"""What a partition with empty records starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collage
from collage.measure.runner import Runner
from collage.records import RecordDatabase
from tests.e2e.networks import convolution_relu


@pytest.mark.long
def test_transitions_and_candidates_are_timed_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to come up."""
    started = []
    new_process = Runner._new_process

    def counted(self: Runner) -> Any:
        started.append(new_process(self))
        return started[-1]

    monkeypatch.setattr(Runner, "_new_process", counted)
    collage.partition(
        convolution_relu(),
        ["tvm", "onnxruntime"],
        estimator="measured",
        records=tmp_path / "r.db",
        confirm_end_to_end=False,
    )
    with RecordDatabase(tmp_path / "r.db") as records:
        assert {record.key.kind for record in records.matching()} == {"transition", "candidate"}
    (process,) = started
    assert not process.alive
