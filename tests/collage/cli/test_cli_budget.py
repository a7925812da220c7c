"""`collage tune --max-error`: backends of less precision take part, and what is wrong is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.annotations.precision import FLOAT32, PRECISIONS
from collage.backends.resolve import available_backends
from collage.cli.tune import configured_backends
from tests.collage.cli.conftest import Command, tuning_options


def _names(tmp_path: Path, *precisions: str) -> set[str]:
    chosen = configured_backends(None, tmp_path / "records.db", 0, precisions=precisions)
    return {backend if isinstance(backend, str) else backend.name for backend in chosen}


@pytest.mark.parametrize("precisions", [(FLOAT32,), PRECISIONS])
def test_the_backends_are_those_of_the_precisions(tmp_path: Path, precisions: tuple[str, ...]) -> None:
    assert _names(tmp_path, *precisions) == {backend.name for backend in available_backends("cpu", precisions)}


def test_without_a_budget_they_are_of_float32(tmp_path: Path) -> None:
    exact = {backend.name for backend in available_backends("cpu")}
    chosen = configured_backends(None, tmp_path / "records.db", 0)
    assert {backend if isinstance(backend, str) else backend.name for backend in chosen} == exact


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-error", "-1", "--calibration", "samples.npz"), "max_error is a number from 0"),
        (("--max-error", "nan", "--calibration", "samples.npz"), "max_error is a number from 0"),
        (("--max-error", "0.01"), "needs calibration samples"),
        (("--calibration", "samples.npz"), "without max_error"),
        (
            ("--max-error", "0.01", "--calibration", "samples.npz", "--precisions", "int4"),
            "no precision is called int4",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    collage_command: Command, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    ran = collage_command("tune", "model.onnx", "-o", tmp_path / "out.so", *tuning_options(tmp_path / "r.db"), *options)
    assert ran.status == 2 and says in ran.err and len(ran.err.splitlines()) == 1, ran
