"""Which backends and which estimator a call gets, and what it is told about the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collage.annotations.precision import BF16, FLOAT32
from collage.api import offer
from collage.api.effort import Effort
from collage.progress import Reporter
from collage.records import RecordDatabase


class Made:
    device = "cpu"

    def __init__(self, name: str, precision: str = FLOAT32) -> None:
        self.name, self.precision, self.is_less_precise = name, precision, precision != FLOAT32


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(offer, "resolve_on", lambda wanted, devices, precisions: {"exact": Made("exact")})
    monkeypatch.setattr(offer, "available_backends", lambda device, precisions: [Made("exact-bf16", BF16)])

    def of(backends: Sequence[str] | None, devices: tuple[str, ...] = ("cpu",), wish: Any = None) -> tuple[str, ...]:
        with RecordDatabase(tmp_path / "records.db") as database:
            given = (backends, "measured", {}, Effort.of("normal"), devices, 1, wish, database, Reporter())
            return offer.offer(*given).notes

    return of


def test_who_left_the_backends_open_is_told_that_less_precise_ones_run_here_too(notes: Any) -> None:
    (note,) = notes(None)
    assert "float32" in note and "exact-bf16" in note and "--max-error" in note


def test_who_chose_backends_a_budget_or_a_gpu_is_not(notes: Any) -> None:
    class Wish:
        precisions = (FLOAT32, BF16)

    assert notes(["exact"]) == () and notes(None, ("cuda",)) == () and notes(None, wish=Wish()) == ()
