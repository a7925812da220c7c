"""Calibration adapts a cost model to another machine by few records, and changes nothing that they do not show."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collage.errors import CollageError
from collage.records import Record, read_log
from estimators.cost_model.calibration import Calibration
from estimators.cost_model.model import CostModel

LOG = Path(__file__).parent / "data" / "records.jsonl.gz"
ELSEWHERE = {"model": "Another Processor", "features": []}


@pytest.fixture(scope="module")
def valid() -> list[Record]:
    return [r for r in read_log(LOG) if r.status == "ok"]


@pytest.fixture(scope="module")
def model(valid: list[Record]) -> CostModel:
    return CostModel(rounds=60, threads=1).fit(valid)


def elsewhere(records: list[Record], seconds: Callable[[Record], float]) -> list[Record]:
    """The same workloads on another machine, of the same instruction sets."""
    device = {**dict(records[0].device or {}), "model": ELSEWHERE["model"]}
    return [
        replace(r, key=replace(r.key, device="cpu-other"), device=device, seconds=float(seconds(r)), spread=1e-9)
        for r in records
    ]


def predicted_elsewhere(model: CostModel, valid: list[Record]) -> Callable[[Record], float]:
    """Twice as slow as the model says, and slower still where there is more to do; the same for all backends."""
    predicted = {r.key.digest: s for r, s in zip(valid, model.predict(valid), strict=True)}
    return lambda r: 2.0 * (predicted[r.key.digest] / 1e-4) ** 0.1 * predicted[r.key.digest]


def test_a_few_records_make_up_for_another_speed(model: CostModel, valid: list[Record]) -> None:
    there = elsewhere(valid, predicted_elsewhere(model, valid))
    truth = np.array([r.seconds for r in there])
    adapted = model.calibrated(there[::5])
    before = np.abs(model.predict(valid) / truth - 1)
    after = np.abs(adapted.predict(there) / truth - 1)
    assert np.median(before) > 0.4 and np.median(after) < 0.1
    assert model.device_ != adapted.device_ == "cpu-other"
    assert adapted.training_["learned_on"] == model.device_info_["model"]


def test_where_nothing_differs_nothing_changes(model: CostModel, valid: list[Record]) -> None:
    predicted = dict(zip((r.key.digest for r in valid), model.predict(valid).tolist(), strict=True))
    same = elsewhere(valid, lambda r: predicted[r.key.digest])
    assert model.calibrated(same[:60]).predict(same) == pytest.approx(model.predict(valid), rel=1e-6)


def test_few_records_change_little() -> None:
    from estimators.features.batch import Roofline, Task, features_of

    records = [r for r in read_log(LOG) if r.status == "ok"][:40]
    tasks = [Task(r.key.structure, r.description, r.key.composites, r.key.threads) for r in records]
    table = features_of(tasks, Roofline.of(records[0].device))
    zeros, halves = np.zeros(40), np.full(40, 0.5)
    few, _ = Calibration.fit(table.take(np.arange(1)), zeros[:1], halves[:1], np.ones(1), 0.9)
    many, _ = Calibration.fit(table, zeros, halves, np.ones(40), 0.9)
    first = table.take(np.arange(1))
    (small,), _ = few.apply(first, zeros[:1], halves[:1])
    (large,), _ = many.apply(first, zeros[:1], halves[:1])
    assert 0.0 < small < large <= 1.05


def test_intervals_hold_the_calibrated_records(model: CostModel, valid: list[Record]) -> None:
    rng = np.random.default_rng(0)
    predicted = dict(zip((r.key.digest for r in valid), model.predict(valid).tolist(), strict=True))
    noisy = {digest: seconds * float(np.exp(rng.normal(0.0, 1.0))) for digest, seconds in predicted.items()}
    there = elsewhere(valid, lambda r: noisy[r.key.digest])
    report = model.calibrated(there[::2]).errors()
    assert 0.85 <= report.rows[0].coverage <= 0.97
    assert report.networks == len(there[::2])
    low, high = model.calibrated(there[::2]).predict_interval(there[1::2])
    inside = np.array([lo <= r.seconds <= hi for r, lo, hi in zip(there[1::2], low, high, strict=True)])
    assert 0.8 <= inside.mean() <= 1.0


def test_a_backend_without_records_is_adapted_by_those_of_the_others(model: CostModel, valid: list[Record]) -> None:
    there = elsewhere(valid, lambda r: 3.0 * (r.seconds or 1.0))
    adapted = model.calibrated([r for r in there if r.key.backend != "tvm"])
    rest = [r for r in there if r.key.backend == "tvm"]
    before = np.log(model.predict([r for r in valid if r.key.backend == "tvm"]))
    assert np.median(np.log(adapted.predict(rest)) - before) == pytest.approx(np.log(3.0), abs=0.3)


def test_a_calibrated_model_is_saved_whole(model: CostModel, valid: list[Record], tmp_path: Path) -> None:
    there = elsewhere(valid, predicted_elsewhere(model, valid))
    adapted = model.calibrated(there[:80])
    adapted.save(tmp_path / "cost.json")
    loaded = CostModel.load(tmp_path / "cost.json")
    assert np.array_equal(loaded.predict_interval(there), adapted.predict_interval(there))
    assert loaded.training_["calibration"]["records"] == 80


def test_records_that_were_measured_otherwise_calibrate(model: CostModel, valid: list[Record]) -> None:
    hot = [replace(r, key=replace(r.key, protocol='{"weights":"hot"}'), seconds=r.seconds / 2) for r in valid[:80]]
    adapted = model.calibrated(hot)
    assert adapted.protocol_ == '{"weights":"hot"}' != model.protocol_
    assert np.median(np.log(adapted.predict(valid) / model.predict(valid))) == pytest.approx(np.log(0.5), abs=0.2)


def test_what_cannot_calibrate_is_one_clear_line(model: CostModel, valid: list[Record]) -> None:
    with pytest.raises(CollageError, match=r"at least 30 .* 10 can be used"):
        model.calibrated(valid[:10])
    with pytest.raises(CollageError, match="nothing of tpu"):
        model.calibrated([*valid[:40], replace(valid[41], key=replace(valid[41].key, backend="tpu"))])
    with pytest.raises(CollageError, match="not fitted"):
        CostModel().calibrated(valid)


@pytest.mark.parametrize("change", [{"level": float("nan")}, {"widening": -1.0}, {"size": "large"}])
def test_a_damaged_calibration_is_refused(change: dict) -> None:
    whole = msgspec.to_builtins(Calibration(0.1, 0.2, 0.3, 0.4, 1.0))
    assert msgspec.convert(whole, Calibration) == Calibration(0.1, 0.2, 0.3, 0.4, 1.0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**whole, **change}, Calibration)
    del whole["level"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(whole, Calibration)
