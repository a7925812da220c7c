"""LearnedEstimator turns predictions into costs, for the device and the backends that its model knows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from collage import plugins
from collage.backends.base import Availability, Backend
from collage.cost import Cost
from collage.errors import CollageError, PluginError
from collage.estimate import CostEstimator, Workload
from collage.records import Record, read_log
from collage.rules.base import PartitionRule
from estimators.cost_model import CostModel
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


def test_another_device_is_an_error(model: CostModel, records: list[Record]) -> None:
    with pytest.raises(CollageError, match="this is cpu-other"):
        LearnedEstimator(model, device="cpu-other").estimate([workload(records[0])])


def test_without_a_model_it_says_how_to_train_one() -> None:
    with pytest.raises(PluginError, match="collage train LOGS -o"):
        LearnedEstimator().estimate([])


def test_it_is_found_by_name() -> None:
    assert plugins.load_class("estimators", "learned") is LearnedEstimator


def test_nothing_costs_nothing(model: CostModel) -> None:
    assert LearnedEstimator(model, device=model.device_).estimate([]) == []


def test_training_gives_a_model_with_its_errors(records: list[Record]) -> None:
    trained = LearnedEstimator.train(records, rounds=10, threads=1)
    report = trained.errors()
    assert report.rows[0].count == len(records) == len(report.points)
    assert np.isfinite(report.rows[0].mape)
