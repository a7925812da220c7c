"""What the timing process says of a rival that raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from collage.compile.build import Blob
from collage.measure.artifact import Artifact
from collage.measure.job import Failed, Job
from collage.measure.protocol import Protocol
from collage.measure.worker import WarmUps, run


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """An engine that takes nothing."""
    if options["message"]:
        raise ValueError(f"Traceback (most recent call last):\n  somewhere\n{options['message']}\n")
    raise AssertionError


def reason(folder: Path, message: str) -> str:
    path = folder / "blob"
    path.write_bytes(b"x")
    rival = Artifact("", blobs=(Blob("f", str(path), "test_failures:create", {"message": message}),))
    said: list[Any] = []
    run(Job((rival,), (), (), Protocol(), 1), WarmUps(), said.append)
    (failed,) = (event for event in said if isinstance(event, Failed))
    return failed.failure.reason


def test_the_last_line_of_a_message_is_the_reason(tmp_path: Path) -> None:
    assert reason(tmp_path, "weights are missing") == "does not run: ValueError: weights are missing"


def test_an_error_without_a_message_says_where_it_was_raised(tmp_path: Path) -> None:
    said = reason(tmp_path, "")
    assert said.startswith("does not run: AssertionError in create (test_failures.py, line ")
    assert said.endswith("): raise AssertionError")


@pytest.mark.parametrize("message", ["", "weights are missing"])
def test_reasons_are_one_line(tmp_path: Path, message: str) -> None:
    assert "\n" not in reason(tmp_path, message)
