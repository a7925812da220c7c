"""LearnedEstimator turns predictions into costs, for the device and the backends that its model knows."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collage import plugins
from collage.backends.base import Availability, Backend
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.errors import CollageError
from collage.records import Record, read_log
from collage.rules.base import PartitionRule
from estimators.cost_model.model import CostModel
from estimators.cost_model.shipped import shipped
from estimators.learned import LearnedEstimator

LOG = Path(__file__).parent / "data" / "records.jsonl.gz"


class NamedBackend(Backend):
    """A backend that only has a name."""

    style = "graph"

    def __init__(self, name: str) -> None:
        self.name = name

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        raise AssertionError("an estimator asks for no rules")

    def configuration(self) -> dict[str, str]:
        return {}


class OneSecond(CostEstimator):
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        return [Cost(1.0) for _ in workloads]


def never() -> object:
    raise AssertionError("a prediction needs no module")


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return [r for r in read_log(LOG) if r.status == "ok"]


@pytest.fixture(scope="module")
def model(records: list[Record]) -> CostModel:
    return CostModel(rounds=10, threads=1).fit(records)


def workload(record: Record, backend: str | None = None) -> Workload:
    return Workload(
        backend=NamedBackend(backend or record.key.backend),
        structure=record.key.structure,
        operators=record.operators,
        extract=never,
        describe=lambda: dict(record.description),
        composites=record.key.composites,
        threads=record.key.threads,
    )


def test_a_cost_is_the_prediction_with_half_its_interval(model: CostModel, records: list[Record]) -> None:
    some = records[:40]
    costs = LearnedEstimator(model, device=model.device_).estimate([workload(r) for r in some])
    low, high = model.predict_interval(some)
    assert [c.seconds for c in costs] == pytest.approx(list(model.predict(some)))
    assert [c.spread for c in costs] == pytest.approx(list((high - low) / 2))
    assert {(c.samples, c.reason) for c in costs} == {(0, "predicted")}


def test_a_model_may_be_a_file(model: CostModel, records: list[Record], tmp_path: Path) -> None:
    model.save(tmp_path / "cost.json")
    (cost,) = LearnedEstimator(tmp_path / "cost.json", device=model.device_).estimate([workload(records[0])])
    assert cost.seconds == pytest.approx(float(model.predict(records[:1])[0]))


def test_what_the_model_does_not_know_goes_to_the_fallback(model: CostModel, records: list[Record]) -> None:
    estimator = LearnedEstimator(model, fallback=OneSecond(), device=model.device_)
    known, other = estimator.estimate([workload(records[0]), workload(records[0], "tpu")])
    assert known.reason == "predicted" and other.seconds == 1.0


def test_without_a_fallback_an_unknown_backend_is_an_error(model: CostModel, records: list[Record]) -> None:
    with pytest.raises(CollageError, match="nothing of tpu"):
        LearnedEstimator(model, device=model.device_).estimate([workload(records[0], "tpu")])


def test_it_states_which_backends_it_knows(model: CostModel) -> None:
    estimator = LearnedEstimator(model, device=model.device_)
    assert [estimator.knows(name) for name in ("tvm", "tpu", "tpu")] == [True, False, False]
    assert LearnedEstimator(model, fallback=OneSecond(), device=model.device_).knows("tpu")


def test_another_device_is_an_error(model: CostModel, records: list[Record]) -> None:
    with pytest.raises(CollageError, match=r"this is cpu-other.*--calibrate"):
        LearnedEstimator(model, device="cpu-other").estimate([workload(records[0])])


def test_without_a_model_the_one_that_ships_predicts_and_says_where_it_is_from(records: list[Record]) -> None:
    estimator = LearnedEstimator(device="cpu-other")
    assert estimator.notes([]) == []
    asked = [workload(r) for r in records[:30]]
    costs = estimator.estimate(asked)
    assert all(c.is_finite and c.spread > 0 and c.is_predicted for c in costs)
    (note,) = estimator.notes(asked)
    assert "of another machine (" in note and "--calibrate" in note


def test_on_its_own_machine_the_model_that_ships_has_nothing_to_say(records: list[Record]) -> None:
    estimator = LearnedEstimator(device=shipped().device_)
    assert estimator.notes([workload(r) for r in records[:30]]) == []


def test_what_is_far_from_the_training_data_is_said(model: CostModel, records: list[Record]) -> None:
    one = next(r for r in records if r.operators == ("relax.nn.relu",))
    (before, dtype), description = one.description["inputs"][0], json.loads(json.dumps(one.description))
    description["inputs"] = [[[100_000, *before], dtype]]
    description["nodes"][0]["out"] = description["inputs"][0]
    huge = replace(one, description=description, key=replace(one.key, structure="huge"))
    assert model.far([one, huge]).tolist() == [False, True]
    estimator = LearnedEstimator(model, device=model.device_)
    assert estimator.notes([workload(one), workload(huge)]) == [
        "1 of 2 predictions are of sizes or kinds that the cost model has not seen"
    ]


def test_other_threads_than_were_learned_from_are_said(model: CostModel, records: list[Record]) -> None:
    estimator = LearnedEstimator(model, device=model.device_)
    notes = estimator.notes([replace(workload(records[0]), threads=64)])
    assert notes[0] == f"costs are predicted for 64 threads by a model of {records[0].key.threads}"


def test_it_is_found_by_name() -> None:
    assert plugins.load_class("estimators", "learned") is LearnedEstimator


def test_nothing_costs_nothing(model: CostModel) -> None:
    assert LearnedEstimator(model, device=model.device_).estimate([]) == []


def test_training_gives_a_model_with_its_errors(records: list[Record]) -> None:
    trained = LearnedEstimator.train(records, rounds=10, threads=1)
    report = trained.errors()
    assert report.rows[0].count == len(records)
    assert np.isfinite(report.rows[0].mape)


def test_products_in_eight_bits_are_unknown_where_the_model_has_not_seen_them(
    model: CostModel, records: list[Record]
) -> None:
    """Neither an error, nor the prediction for float32."""
    float32 = workload(next(r for r in records if r.key.backend == "openvino"))
    int8 = replace(float32, composites=(("int8", (0,)),))
    alone = LearnedEstimator(model, device=model.device_)
    one, other = alone.estimate([float32, int8])
    assert one.is_predicted and other.is_unknown and other.reason == "predicted: nothing, of backend openvino+int8"
    assert alone.notes([float32, int8]) == alone.notes([float32]) and alone.knows("openvino")
    helped = LearnedEstimator(model, fallback=OneSecond(), device=model.device_)
    assert [cost.seconds for cost in helped.estimate([float32, int8])] == [one.seconds, 1.0]
