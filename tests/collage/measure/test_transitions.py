"""Transitions: every pair of available backends has one, also where it cannot be measured; none is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.cost.cost import Cost
from collage.cost.transition import OTHER_POOL, Pair, Transition, completed, transition_notes, transitions_of
from collage.measure import transitions
from collage.measure.artifact import compile_artifact
from collage.measure.protocol import Protocol
from collage.measure.transitions import SHAPES, transition_costs
from collage.progress import Reporter
from collage.records import RecordDatabase
from tests.e2e import faulty

BACKENDS = resolve_backends(None, "cpu")
QUICK = Protocol(weights="hot", warmup=1, min_samples=3, max_samples=3, time_limit_s=0.0)


class Notes(Reporter):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []

    def note(self, line: str) -> None:
        self.notes.append(line)

    def stage(self, name: str, total: int | None = None) -> None:
        self.stages.append(name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples of small tensors, and builds in this process."""
    monkeypatch.setattr(transitions, "transition_protocol", lambda device: QUICK)
    monkeypatch.setattr(transitions, "SHAPES", [(1, 8, 8, 8), (1, 8, 16, 16)])
    monkeypatch.setattr("collage.measure.probe.build_all", lambda asked, *_: [compile_artifact(p) for p in asked])


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordDatabase]:
    with RecordDatabase(tmp_path / "records.db") as database:
        yield database


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three samples may be as noisy as they like."""
    monkeypatch.setattr("collage.cost.transition._VAGUE_S", 1e9)


@pytest.mark.usefixtures("noise")
def test_every_pair_of_available_backends_is_measured_once(records: RecordDatabase) -> None:
    backends, told = list(BACKENDS.values()), Notes()
    found = transition_costs(backends, 1, records, told)
    assert set(found) == set(permutations(BACKENDS, 2)), told.notes
    assert all(len(t.measured) == 2 and not t.like for t in found.values())
    again = Notes()
    assert transition_costs(backends, 1, records, again) == found and not again.stages


@pytest.mark.usefixtures("noise")
def test_a_pair_that_cannot_be_measured_is_told_and_not_recorded(records: RecordDatabase) -> None:
    backends: list[Backend] = [BACKENDS["onnxruntime"], BACKENDS["tvm"], faulty.RaisesAtCodegen()]
    told = Notes()
    found = transition_costs(backends, 1, records, told)
    assert set(found) == {("onnxruntime", "tvm"), ("tvm", "onnxruntime")}
    assert any("takes nothing at all" in note for note in told.notes)
    assert {record.status for record in records} == {"ok"}
    whole = completed(found, {backend.name: backend.pool for backend in backends})
    assert set(whole) == set(permutations([backend.name for backend in backends], 2))
    notes = " ".join(transition_notes(whole))
    assert "raises_at_codegen -> tvm" in notes and "charged like" in notes


def test_without_leave_to_measure_the_records_are_all_there_is(records: RecordDatabase) -> None:
    backends, told = [BACKENDS["onnxruntime"], BACKENDS["tvm"]], Notes()
    assert transition_costs(backends, 1, records, told, measure=False) == {} and not told.stages


def test_the_probes_span_sizes_that_networks_have() -> None:
    sizes = [transitions._bytes(shape) for shape in SHAPES]
    assert len(sizes) >= 3 and max(sizes) >= 16 * min(sizes)


MEASURED: dict[Pair, Transition] = {
    ("a", "b"): Transition(10.0),
    ("b", "a"): Transition(20.0),
    ("a", "c"): Transition(1.0),
}


def test_a_pair_without_a_measurement_is_charged_by_the_nearest_known() -> None:
    """a and c share a pool, as b and d do."""
    pools = {"a": "one", "c": "one", "b": "two", "d": "two"}
    whole = completed(MEASURED, pools)
    assert set(whole) == set(permutations(pools, 2))
    assert {pair: whole[pair] for pair in MEASURED} == MEASURED
    assert whole["c", "d"] == replace(Transition(10.0), like="a -> b"), "from the same pool to the same pool"
    assert whole["d", "c"].latency == 20.0
    assert whole["b", "d"].like == "a -> c", "a pair that stays in one pool, whichever it is"


def test_without_any_measurement_there_are_defaults_and_they_are_told() -> None:
    whole = completed({}, {"a": "one", "b": "two"})
    assert {t.latency for t in whole.values()} == {OTHER_POOL.latency} and OTHER_POOL.latency > 0
    assert "a -> b, b -> a" in transition_notes(whole)[0] and "another machine" in transition_notes(whole)[0]


KIB = 1 << 10


def line(*points: Sequence[Any]) -> tuple[float, float]:
    """Of points in KiB and µs; microseconds, and picoseconds per byte."""
    found = Transition.through([(x * KIB, y * 1e-6, half * 1e-6) for x, y, half in points])
    return found.latency * 1e6, found.seconds_per_byte * 1e12


def test_a_line_through_the_sizes() -> None:
    latency, slope = line((64, 10.655, 1.0), (512, 15.243, 1.0), (2048, 30.97, 1.0))
    assert latency == pytest.approx(10, abs=0.3) and slope == pytest.approx(10, abs=0.3)
    assert line((64, 7.0, 1.0)) == pytest.approx((7.0, 0.0))
    latency, slope = line((64, 10.0, 1.0), (512, 10.0, 5.0), (2048, 9000.0, 7000.0))
    assert latency == pytest.approx(10, abs=1) and slope < 5, "noise has no say"


def test_what_is_charged_is_never_negative_and_what_was_measured_is_kept() -> None:
    assert line((64, -5.0, 1.0), (512, -15.0, 1.0)) == (0.0, 0.0)
    assert line((64, 20.0, 1.0), (512, 10.0, 1.0)) == pytest.approx((15.0, 0.0)), "more bytes seem to take less"
    latency, slope = line((64, -9.0, 1.0), (512, 4.0, 1.0), (2048, 60.0, 1.0))
    assert latency == 0 and 20 < slope < 30
    points = [(KIB, -3e-6, 1e-6), (2 * KIB, -4e-6, 1e-6)]
    assert Transition.through(points).measured == tuple(points)
    with pytest.raises(ValueError, match="not negative"):
        Transition(-1e-6)


def test_a_pair_that_is_all_noise_counts_as_not_measured() -> None:
    quiet = {("b", "b", size): Cost(1e-3, 1e-6, 9) for size in (KIB, 512 * KIB)}
    after = {("a", "b", size): Cost(1.01e-3, 1e-6, 9) for size in (KIB, 512 * KIB)}
    assert set(transitions_of({**quiet, **after})) == {("a", "b")}
    assert transitions_of({**quiet, **{key: Cost(9e-3, 5e-3, 9) for key in after}}) == {}
