"""Latencies of lower precision, predicted from those in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from collage.annotations.precision import BF16, INT8
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.records import Record
from estimators.active import ActiveEstimator
from estimators.cost_model.model import CostModel
from estimators.float32_twins import RATIOS, Float32Twins
from tests.estimators.test_learned import NamedBackend, model, records, workload

__all__ = ["model", "records"]

RATIO, NOISE = 0.5, 0.2


class Narrow(NamedBackend):
    """A library in bfloat16."""

    style = "library"
    precision = BF16


@pytest.fixture(scope="module")
def patterns(records: list[Record]) -> list[Workload]:
    """What OpenVINO takes, as if it were the patterns of a library."""
    found = {r.key.structure: workload(r) for r in records if r.key.backend == "openvino"}
    return [replace(w, backend=Narrow("openvino-bf16"), composites=()) for w in found.values()]


class Faster(CostEstimator):
    """Half of what the model says of float32, with noise."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.asked: list[Workload] = []

    def true(self, workload: Workload) -> float:
        noise = np.random.default_rng(int(workload.structure[:8], 16)).normal(0.0, NOISE)
        predicted = self.model.predict([replace(workload, backend=NamedBackend("openvino"))])
        return float(predicted[0] * RATIO * math.exp(noise))

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        self.asked += workloads
        return [Cost(self.true(w), samples=5) for w in workloads]


def test_a_few_are_measured_and_the_others_are_inside_their_intervals(
    model: CostModel, patterns: list[Workload]
) -> None:
    assert len(patterns) > 3 * RATIOS
    measured = Faster(model)
    estimator = ActiveEstimator(model, measured=measured, device=model.device_, share=1.0)
    bounds = estimator.bounds(patterns)
    assert len(measured.asked) == RATIOS
    rest = [(b, measured.true(w)) for w, b in zip(patterns, bounds, strict=True) if w not in measured.asked]
    inside = sum(low <= seconds <= high for (low, high), seconds in rest)
    assert inside >= 0.8 * len(rest)
    assert all(high / low < math.exp(8 * NOISE) for (low, high), _ in rest)
    assert estimator.bounds(patterns) == bounds and len(measured.asked) == RATIOS
    (note,) = [note for note in estimator.notes(patterns) if "float32" in note]
    assert "openvino-bf16" in note
    assert all(cost.samples == 5 for cost in estimator.estimate(patterns[:40])), "within the budget it measures"


def test_few_are_measured_entirely(model: CostModel, patterns: list[Workload]) -> None:
    measured = Faster(model)
    estimator = ActiveEstimator(model, measured=measured, device=model.device_, share=1.0)
    assert set(estimator.bounds(patterns[: 2 * RATIOS])) == {(0.0, math.inf)} and not measured.asked


def test_only_patterns_of_a_library_have_a_twin(model: CostModel, patterns: list[Workload]) -> None:
    twins = Float32Twins(model)
    graph, unheard, exact = NamedBackend("openvino-bf16"), Narrow("other-bf16"), Narrow("openvino")
    graph.precision = BF16  # type: ignore[misc]
    exact.precision = "float32"  # type: ignore[misc]
    for backend in (graph, unheard, exact):
        assert not twins.to_measure([replace(w, backend=backend) for w in patterns]), backend.name
    assert not twins.to_measure([replace(w, composites=((INT8, (0,)),)) for w in patterns])
    assert [len(chosen) for chosen in twins.to_measure(patterns).values()] == [RATIOS]


def test_what_could_not_be_measured_gives_no_ratio(model: CostModel, patterns: list[Workload]) -> None:
    twins = Float32Twins(model)
    chosen = twins.to_measure(patterns)["openvino-bf16"]
    twins.learn(dict.fromkeys(chosen, Cost.invalid("refused")))
    assert all(cost.is_unknown for cost in twins.predict(patterns)) and twins.notes() == []
    twins.learn({w: Cost(1.0) for w in chosen})
    assert all(cost.is_predicted for cost in twins.predict(patterns))
