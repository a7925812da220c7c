"""ActiveEstimator: intervals for everything, measurements within a budget, predictions for the rest."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage.cost.cost import PREDICTED, Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import CollageError
from collage.measure.protocol import candidate_protocol
from collage.records import Record, RecordDatabase, key_of
from collage.runtime.device_info import DeviceInfo, describe_device
from estimators.active import ActiveEstimator
from estimators.adaptation import CALIBRATION, calibration_set
from estimators.cost_model.model import CostModel
from tests.estimators.test_learned import model, records, workload

__all__ = ["model", "records"]


class Counted(CostEstimator):
    """Everything takes a second."""

    def __init__(self) -> None:
        self.asked: list[Workload] = []

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.asked += workloads
        return [Cost(1.0, samples=5) for _ in workloads]


def active(model: CostModel, **options: Any) -> ActiveEstimator:
    return ActiveEstimator(model, **{"measured": Counted(), "device": model.device_, "share": 1.0, **options})


def some(records: list[Record], count: int = 10) -> list[Workload]:
    return list({(r.key.structure, r.key.backend): workload(r) for r in records}.values())[:count]


def test_bounds_are_the_model_s_intervals_and_measure_nothing(model: CostModel, records: list[Record]) -> None:
    estimator, asked = active(model), some(records)
    bounds = estimator.bounds(asked)
    low, high = model.predict_interval(asked)
    assert [b[0] for b in bounds] == pytest.approx(list(low)) and [b[1] for b in bounds] == pytest.approx(list(high))
    assert isinstance(estimator.measured, Counted) and not estimator.measured.asked


def test_intervals_are_widened_in_the_logarithm(model: CostModel, records: list[Record]) -> None:
    (narrow,), (wide,) = (active(model, widening=x).bounds(some(records, 1)) for x in (1.0, 2.0))
    assert math.log(wide[1] / wide[0]) == pytest.approx(2 * math.log(narrow[1] / narrow[0]))


@pytest.mark.parametrize("options", [{"share": 0.3}, {"measurements": 3}, {"most": 3}, {"most": 3, "least": 5}])
def test_when_the_budget_is_spent_costs_are_predicted(
    model: CostModel, records: list[Record], options: dict[str, Any]
) -> None:
    estimator, asked = active(model, **options), some(records)
    estimator.bounds(asked)
    costs = estimator.estimate(asked)
    assert [c.samples for c in costs] == [5] * 3 + [0] * 7 and {c.reason for c in costs[3:]} == {PREDICTED}
    assert estimator.estimate(asked) == costs, "asked again it says the same"
    assert pickle.loads(pickle.dumps(ActiveEstimator(share=0.3))).share == 0.3


class Prevented(Counted):
    """There is no space for every other one."""

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        costs = super().estimate(workloads)
        return [Cost.unknown("No space left on device") if i % 2 else cost for i, cost in enumerate(costs)]


def test_what_the_machine_prevented_is_predicted_with_the_reason(model: CostModel, records: list[Record]) -> None:
    estimator, asked = active(model, measured=Prevented()), some(records)
    bounds = estimator.bounds(asked)
    costs = estimator.estimate(asked)
    assert [c.samples for c in costs] == [5, 0] * 5
    assert all(c.is_predicted and "No space left" in c.reason for c in costs[1::2])
    assert [c.seconds for c in costs[1::2]] == pytest.approx([math.sqrt(low * high) for low, high in bounds[1::2]])
    assert estimator.bounds(asked)[1::2] == bounds[1::2], "nothing more is known of them"
    assert estimator.estimate(asked) == costs and len(estimator.measured.asked) == 10, "nor tried again"  # type: ignore[union-attr]
    assert any("5 costs are predicted that could not be measured" in note for note in estimator.notes(asked))


def test_no_seconds_no_measurements(model: CostModel, records: list[Record]) -> None:
    assert {c.reason for c in active(model, seconds=0.0).estimate(some(records))} == {PREDICTED}


def test_a_backend_that_the_model_does_not_know_may_cost_anything(model: CostModel, records: list[Record]) -> None:
    other = workload(records[0], "tpu")
    assert active(model).bounds([other]) == [(0.0, math.inf)]
    assert active(model, measurements=0).estimate([other])[0].is_unknown


@pytest.mark.parametrize("options", [{"share": 1.5}, {"widening": -1.0}])
def test_wrong_parameters_are_named(model: CostModel, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"share|widened"):
        active(model, **options).estimate([])


class Slower(Counted):
    """Everything takes three times as long as the model says."""

    def __init__(self, model: CostModel) -> None:
        super().__init__()
        self.model = model

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        super().estimate(workloads)
        return [Cost(3.0 * float(seconds), samples=5) for seconds in self.model.predict(workloads)]


@pytest.fixture
def elsewhere(model: CostModel) -> ActiveEstimator:
    """On a machine that is not the model's, with the same instruction sets."""
    there = DeviceInfo("cpu", "Another", tuple(model.device_info_["features"]), 2, 0, "Linux", "x86_64")
    return ActiveEstimator(model, measured=Slower(model), device=there, least=70, share=0.0)


def test_a_model_of_another_machine_is_adapted_by_a_few_measurements(
    elsewhere: ActiveEstimator, model: CostModel, records: list[Record]
) -> None:
    asked, measured = some(records, 500), elsewhere.measured
    assert isinstance(measured, Slower)
    bounds = elsewhere.bounds(asked)
    chosen = list(measured.asked)
    assert CALIBRATION <= len(chosen) <= 70 < len(asked) and elsewhere.budget_.adapted
    for one, (low, high), seconds in zip(asked, bounds, model.predict(asked), strict=True):
        assert math.sqrt(low * high) == pytest.approx(3.0 * seconds, rel=0.1)
        assert (low == high) == (one in chosen), "of what was measured the cost is known"
    elsewhere.estimate(asked)
    elsewhere.bounds(asked)
    assert len(measured.asked) == 70, "the calibration counts, and is done once"
    assert "of another machine" in elsewhere.notes(asked)[0] and "adapted" in elsewhere.notes(asked)[0]


def test_more_is_measured_where_the_model_is_of_a_machine_that_is_not_near(
    model: CostModel, records: list[Record]
) -> None:
    asked, spent = some(records, 500), {}
    for features in (tuple(model.device_info_["features"]), ("avx2",)):
        there = DeviceInfo("cpu", "Another", features, 2, 0, "Linux", "x86_64")
        estimator = ActiveEstimator(model, measured=Slower(model), device=there, share=0.3, most=100)
        estimator.bounds(asked)
        estimator.estimate(asked)
        assert estimator.budget_.adapted
        spent[estimator.budget_.far] = sum(estimator.budget_.measures.values())
    assert spent == {False: 100, True: 200}


@pytest.mark.parametrize(("cache", "adapted"), [(16 << 20, True), (2 << 20, False)])
def test_the_models_own_machine_is_adapted_to_a_network_that_stays_in_its_caches(
    model: CostModel, records: list[Record], cache: int, adapted: bool
) -> None:
    features = tuple(model.device_info_["features"])
    there = DeviceInfo("cpu", "Another", features, 2, 0, "Linux", "x86_64", cache=cache)
    own = model.adapted({w: Cost(1.0) for w in some(records, 40)}, there.fingerprint, there.as_dict())
    estimator = ActiveEstimator(own, measured=Slower(model), device=there, least=70, share=0.0)
    asked = [replace(w, working_set=8 << 20) for w in some(records, 200)]
    estimator.bounds(asked)
    assert bool(estimator.budget_.adapted) is adapted and not estimator.budget_.far
    assert any("a model of larger networks" in note for note in estimator.notes(asked)) is adapted


@pytest.mark.parametrize(("recorded", "measured"), [(0, 10), (6, 4), (30, 0)])
def test_what_is_recorded_counts_as_spent(
    model: CostModel,
    records: list[Record],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    recorded: int,
    measured: int,
) -> None:
    """A second run on the same network measures nothing again, and nothing else either."""
    here = describe_device()
    own = model.adapted({w: Cost(1.0) for w in some(records, 40)}, here.fingerprint, here.as_dict())
    asked = some(records, 50)
    with RecordDatabase(tmp_path / "records.db") as database:
        known = [Record.of(key_of(w, here, candidate_protocol(here)), Cost(1e-3)) for w in asked[:recorded]]
        database.put_many(known)
        estimator, counted = ActiveEstimator(own, database, share=0.2, device=here), Counted()
        vars(estimator)["measurer_"] = counted
        estimator.bounds(asked)
        costs = estimator.estimate(asked)
        monkeypatch.setattr(RecordDatabase, "costs", None)  # every search asks for all: they are looked up once
        estimator.bounds(asked)
    assert len(counted.asked) == measured
    assert [cost.seconds for cost in costs[:recorded]] == [1e-3] * recorded


def test_records_that_spent_the_budget_adapt_the_model(model: CostModel, records: list[Record], tmp_path: Path) -> None:
    here, asked = describe_device(), some(records, 500)
    model = copy.copy(model)  # of a machine that is like this one: predictions depend on instruction sets and caches
    model.device_, model.device_info_ = "another", {**here.as_dict(), "model": "Another"}
    chosen = set(calibration_set(model, asked))
    recorded = [w for w in asked if w not in chosen][:200]
    with RecordDatabase(tmp_path / "records.db") as database:
        costs = [Cost(3.0 * float(seconds)) for seconds in model.predict(recorded)]
        database.put_many(
            [Record.of(key_of(w, here, candidate_protocol(here)), c) for w, c in zip(recorded, costs, strict=True)]
        )
        estimator, counted = ActiveEstimator(model, database, share=0.2, device=here), Counted()
        vars(estimator)["measurer_"] = counted
        bounds = dict(zip(asked, estimator.bounds(asked), strict=True))
    assert estimator.budget_.adapted and not counted.asked
    rest = [w for w in asked if w not in set(recorded)]
    middles = [math.sqrt(bounds[w][0] * bounds[w][1]) for w in rest]
    assert middles == pytest.approx([3.0 * float(seconds) for seconds in model.predict(rest)], rel=0.2)


def test_too_few_measurements_adapt_nothing(elsewhere: ActiveEstimator, records: list[Record]) -> None:
    elsewhere.least = 10
    with pytest.raises(CollageError, match="the cost model is of device"):
        elsewhere.bounds(some(records, 500))
    assert not elsewhere.budget_.adapted


def test_the_calibration_set_is_of_all_sizes_and_has_every_backend_of_a_structure(
    model: CostModel, records: list[Record]
) -> None:
    asked = some(records, 500)
    chosen = calibration_set(model, asked)
    structures = {w.structure for w in chosen}
    assert {w for w in asked if w.structure in structures} == set(chosen)
    every, ours = (sorted(model.predict(workloads)) for workloads in (asked, chosen))
    assert ours[0] <= every[len(every) // 10] and ours[-1] >= every[-len(every) // 10]
    assert calibration_set(model, asked[::-1]) != [] and calibration_set(model, []) == []
    few = some(records, 5)
    assert set(calibration_set(model, few)) == set(few)


def test_nothing_is_predicted_twice(model: CostModel, records: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search asks for the bounds of all workloads."""
    estimator, asked, predicted = active(model), some(records), list[int]()
    real = CostModel.predict_interval

    def counted(self: CostModel, items: Sequence[Workload]) -> Any:
        predicted.append(len(items))
        return real(self, items)

    monkeypatch.setattr(CostModel, "predict_interval", counted)
    first = estimator.bounds(asked)
    assert estimator.bounds([*asked, *some(records, 12)])[:10] == first
    assert predicted == [10, 2]


def test_products_in_eight_bits_are_measured_where_the_model_has_not_seen_them(
    model: CostModel, records: list[Record]
) -> None:
    float32 = workload(next(r for r in records if r.key.backend == "openvino"))
    int8 = replace(float32, composites=(("int8", (0,)),))
    bf16 = workload(records[0], "openvino-bf16")
    estimator = active(model)
    known, *others = estimator.bounds([float32, int8, bf16])
    assert 0.0 < known[0] < known[1] < math.inf and others == [(0.0, math.inf)] * 2
    assert [cost.seconds for cost in estimator.estimate([int8, bf16])] == [1.0, 1.0]
    spent = active(model, measurements=0)
    assert [cost.is_unknown for cost in spent.estimate([float32, int8, bf16])] == [False, True, True]
    shared = active(model, share=0.0)
    shared.bounds([float32, int8])
    assert [cost.is_predicted for cost in shared.estimate([float32, int8])] == [True, False], "whatever the share"
