"""Running one test of a suite by hand, to see whether it fails."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest


def failure(suite: Any, test: str, tmp_path: Path | None = None) -> str | None:
    """What the test fails with, for some of its parameters; None when it passes for all."""
    method = getattr(suite, test)
    marks = [mark for mark in getattr(method, "pytestmark", []) if mark.name == "parametrize"]
    cases: list[dict[str, Any]] = [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]
    for number, case in enumerate(cases):
        if "tmp_path" in inspect.signature(method).parameters:
            assert tmp_path is not None
            case["tmp_path"] = tmp_path / str(number)
            case["tmp_path"].mkdir()
        try:
            method(**case)
        except (Exception, pytest.fail.Exception) as error:
            return f"{type(error).__name__}: {error}"
    return None
