"""Sessions of measuring on a machine whose speed changes: what was measured in several brings all to one level."""

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from collage.records import Record
from estimators.cost_model.data.repeats import one_of_each
from estimators.cost_model.data.sessions import leveled


@pytest.fixture(scope="module")
def morning(measured: list[Record]) -> list[Record]:
    """One backend's records, as if all had been taken in some minutes."""
    return [at(r, 0.0) for r in measured if r.key.backend == "tvm"]


def at(record: Record, hours: float, times: float = 1.0) -> Record:
    when = datetime.fromisoformat("2026-01-01T08:00:00+00:00") + timedelta(hours=hours)
    return replace(record, timestamp=when.isoformat(timespec="microseconds"), seconds=record.seconds * times)


def pairs_of(records: list[Record]) -> list[tuple[str, Record]]:
    return [(record.key.structure, record) for record in records]


def ratios(records: list[Record], truth: list[Record]) -> np.ndarray:
    return np.array([a.seconds / b.seconds for a, b in zip(records, truth, strict=True)])


def test_repeated_measurements_show_a_slow_hour(morning: list[Record]) -> None:
    again, alone = morning[:60], morning[60:]
    first, second = [at(r, 0) for r in again], [at(r, 5, 1.21) for r in (*again, *alone)]
    found = leveled(pairs_of([*first, *second]))
    # What was measured in both is 10% above the first hour and 10% below the second; and so is the level of all.
    assert ratios(found[:60], again) == pytest.approx(np.full(60, 1.1), rel=1e-6)
    assert ratios(found[60:], [*again, *alone]) == pytest.approx(np.full(len(morning), 1.1), rel=1e-6)


def test_what_only_a_few_workloads_suffered_is_no_slow_hour(morning: list[Record]) -> None:
    second = [at(r, 5, 3.0 if number % 4 == 0 else 1.0) for number, r in enumerate(morning)]
    found = leveled(pairs_of([*morning, *second]))
    assert ratios(found, [*morning, *second]) == pytest.approx(np.ones(2 * len(morning)), rel=1e-6)


def test_sessions_that_share_little_are_left_as_they_are(morning: list[Record]) -> None:
    second = [at(r, 5, 2.0) for r in morning[-20:]]
    everything = [*morning[:-1], *second]
    assert leveled(pairs_of(everything)) == everything


def test_one_measurement_that_was_disturbed_hardly_moves_the_mean_of_three(morning: list[Record]) -> None:
    several = [at(morning[0], 0), at(morning[0], 5, 3.0), at(morning[0], 10)]
    (merged,) = one_of_each(pairs_of(several)).values()
    assert 1.0 < merged.seconds / morning[0].seconds < 1.06


def test_each_backend_has_a_level_of_its_own(measured: list[Record]) -> None:
    slower = {"tvm": 1.0, "openvino": 1.44, "onnxruntime": 1.0}
    first = [at(r, 0) for r in measured]
    second = [at(r, 5, slower[r.key.backend]) for r in measured]
    pairs = [((r.key.structure, r.key.backend), r) for r in (*first, *second)]
    found = ratios(leveled(pairs)[: len(first)], first)
    for name, factor in slower.items():
        rows = [i for i, r in enumerate(first) if r.key.backend == name]
        assert found[rows] == pytest.approx(np.full(len(rows), factor**0.5), rel=1e-6)


def test_a_backend_of_the_slow_session_alone_comes_to_the_level_of_the_others(measured: list[Record]) -> None:
    others = [r for r in measured if r.key.backend != "openvino"]
    first, second = [at(r, 0) for r in others], [at(r, 5, 1.44) for r in measured]
    pairs = [((r.key.structure, r.key.backend), r) for r in (*first, *second)]
    found = leveled(pairs)[len(first) :]
    late = {name: [i for i, r in enumerate(second) if r.key.backend == name] for name in ("tvm", "openvino")}
    levels = ratios(found, measured)
    assert levels[late["openvino"]] == pytest.approx(np.full(len(late["openvino"]), 1.2), rel=0.01)
    assert levels[late["tvm"]] == pytest.approx(np.full(len(late["tvm"]), 1.2), rel=0.01)


def test_what_has_no_latency_stays(morning: list[Record]) -> None:
    failed = replace(at(morning[0], 5), status="invalid", seconds=None)
    second = [at(r, 5, 1.21) for r in morning[1:]]
    found = leveled(pairs_of([*morning, failed, *second]))
    assert found[len(morning)] == failed
    assert one_of_each(pairs_of([*morning, failed, *second]))[failed.key.structure].seconds is None


def test_they_show_slow_minutes_of_a_session_too(morning: list[Record]) -> None:
    half = len(morning) // 2
    slow = [at(r, 0.1, 1.44) for r in morning[half:]]
    first, second = [*morning[:half], *slow], [at(r, 5) for r in morning]
    found = ratios(leveled(pairs_of([*first, *second])), [*morning, *morning])
    # All are on one level: that of the mean of the logarithms, to which a quarter of the records added 44%.
    assert found == pytest.approx(np.full(2 * len(morning), np.exp(np.log(found).mean())), rel=1e-6)
