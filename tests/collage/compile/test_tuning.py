"""`TVMBackend(tune_trials=N)`: kernels are tuned before they are measured, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import collage
from collage.backends.tvm.backend import TVMBackend
from collage.progress import Reporter
from tests.e2e.networks import convolution_relu


class Stages(Reporter):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.labels: list[str] = []

    def stage(self, name: str, total: int | None = None) -> None:
        self.stages.append(name)

    def step(self, label: str, count: int = 1) -> None:
        self.labels.append(label)


@pytest.mark.slow
def test_kernels_are_tuned_once_and_only_on_request(tmp_path: Path) -> None:
    def partition(trials: int) -> tuple[Stages, set[str]]:
        backend = TVMBackend(tune_trials=trials, tuning_records=str(tmp_path / "tuning"))
        seen = Stages()
        collage.partition(
            convolution_relu(),
            [backend],
            records=tmp_path / "records.db",
            threads=1,
            confirm_end_to_end=False,
            reporter=seen,
        )
        return seen, {label for label in seen.labels if label.startswith("tuning kernel")}

    seen, tuned = partition(0)
    assert "tuning kernels" not in seen.stages and not tuned
    _, tuned = partition(2)
    assert tuned == {"tuning kernel 1 of 1, 2 trials"}, "convolution and relu are one kernel"
    seen, tuned = partition(2)
    assert "tuning kernels" in seen.stages and not tuned
