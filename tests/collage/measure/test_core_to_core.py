"""Cores that are far from each other are noticed."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.measure import core_to_core as module
from collage.measure.core_to_core import core_to_core, round_trip


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that processes share, of this test alone."""
    path = tmp_path / "remembered.json"
    monkeypatch.setattr(module, "_files", lambda: [path])
    module._known.cache_clear()
    yield path
    module._known.cache_clear()


@pytest.fixture
def latencies(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """Processor -> seconds of a round trip from the first one."""
    found: dict[int, float] = {}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, *found})
    monkeypatch.setattr(module, "round_trip", lambda first, other: found[other])
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_a_round_trip_takes_between_ten_nanoseconds_and_ten_microseconds() -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    deadline = time.monotonic() + 60  # a busy machine runs both at a time now and then only
    while not 1e-8 < (seconds := round_trip(first, second)) < 1e-5:
        assert time.monotonic() < deadline, seconds


def test_a_processor_that_is_not_there_is_not_waited_for() -> None:
    assert round_trip(0, 4095) == math.inf


def test_what_counts_is_the_worst_pair_over_its_own_least(latencies: dict[int, float]) -> None:
    latencies.update({1: 110e-9, 2: 300e-9})  # 2 is always far
    assert core_to_core() == 1.0
    latencies.update({1: 440e-9, 2: 330e-9})
    assert core_to_core() == pytest.approx(4.0)
    latencies[1] = math.inf
    assert core_to_core() == pytest.approx(1.1)


def test_the_least_is_remembered_for_other_processes(latencies: dict[int, float], remembered: Path) -> None:
    latencies[1] = 110e-9
    core_to_core()
    module._known.cache_clear()  # another process, which begins while the cores are far from each other
    latencies[1] = 550e-9
    assert core_to_core() == pytest.approx(5.0)
    assert json.loads(remembered.read_text()) == {"0-1": 110e-9}


def test_two_threads_of_one_core_are_no_measure_of_two_cores(latencies: dict[int, float]) -> None:
    latencies[1] = 62e-9
    assert core_to_core() <= 1.0
    latencies[1] = 175e-9  # two cores next to each other: on one machine 100 to 180 ns
    assert core_to_core() == pytest.approx(1.75)


@pytest.mark.parametrize("text", ["", "[1]", '{"0-1": "x"}', '{"0-1": null}', '{"0-1": -1.0}'])
def test_a_damaged_memory_is_none(text: str, latencies: dict[int, float], remembered: Path) -> None:
    remembered.write_text(text)
    latencies[1] = 400e-9
    assert core_to_core() == 1.0


def test_nothing_is_known_of_one_processor(latencies: dict[int, float]) -> None:
    assert core_to_core() == 0.0


def test_nothing_is_known_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_function", lambda: None)
    assert core_to_core() == 0.0
