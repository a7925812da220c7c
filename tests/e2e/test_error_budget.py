"""Within an error budget: what ships keeps it on samples that were not searched with; the plan says so, and comes back
from its file as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import collage
from collage import plugins
from collage.accuracy.budget import relative_error
from collage.accuracy.effects import _Part
from collage.api.plan import Plan
from collage.errors import CollageError, ModelInputError
from collage.frontend import load
from collage.measure.reference import ReferenceRun
from estimators.measured import _DeviceEstimator

pytestmark = pytest.mark.long

_LIMIT = 0.05
#: Those in bfloat16 where the processor has it; products in eight bits are OpenVINO's everywhere.
_BF16 = ["openvino-bf16"] if plugins.load("backends", "openvino-bf16").availability().available else []
_BACKENDS = ["tvm", "openvino", *_BF16]


def _network() -> tvm.IRModule:
    """Four convolutions, large enough for bytes to pay."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 32, 40, 40), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(4):
                weights = relax.const(rng.standard_normal((32, 32, 3, 3)).astype(np.float32) / 17)
                value = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(value, weights, padding=1))))
            out = builder.emit_output(relax.op.mean(value, [2, 3]))
        builder.emit_func_output(out)
    return load(builder.get())


def _samples(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, 32, 40, 40)).astype(np.float32) for _ in range(count)]


@pytest.fixture(scope="module")
def module() -> tvm.IRModule:
    return _network()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records") / "records.sqlite"


@pytest.fixture(scope="module")
def plan(module: Any, records: Path) -> Plan:
    return collage.partition(
        module,
        backends=_BACKENDS,
        max_error=_LIMIT,
        calibration=_samples(0, 6),
        records=records,
        threads=1,
        effort="quick",
    )


def _outputs(exe: Any, samples: list[np.ndarray]) -> list[list[np.ndarray]]:
    return [[np.asarray(exe(sample))] for sample in samples]


def test_what_ships_keeps_the_budget_on_samples_that_nobody_saw(module: Any, plan: Plan) -> None:
    exact = collage.partition(module, backends=["tvm"], confirm_end_to_end=False, effort="quick", threads=1).compile()
    unseen = _samples(1, 4)
    pairs = zip(_outputs(plan.compile(), unseen), _outputs(exact, unseen), strict=True)
    errors = [relative_error(ours, right) for ours, right in pairs]
    assert plan.accuracy is not None and plan.accuracy.upper <= _LIMIT and plan.accuracy.samples == 3
    assert np.mean(errors) <= 1.2 * _LIMIT
    assert np.mean(errors) == pytest.approx(plan.accuracy.measured, rel=0.3, abs=1e-5), "as was measured on others"


def test_the_frontier_is_ordered_and_bounded(plan: Plan) -> None:
    assert plan.frontier and plan.frontier[0].predicted <= plan.frontier[-1].predicted
    for before, after in zip(plan.frontier, plan.frontier[1:], strict=False):
        assert before.predicted < after.predicted and after.sum_s < before.sum_s
    assert all(point.bound_s <= point.sum_s * (1 + 1e-9) for point in plan.frontier)
    assert "Within the error budget" in plan.summary()


def test_the_plan_comes_back_from_its_file(module: Any, plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    again = Plan.load(tmp_path / "plan.json", module)
    assert again.accuracy == plan.accuracy and again.frontier == plan.frontier and again.ranges == plan.ranges
    sample = _samples(2, 1)
    assert relative_error(_outputs(again.compile(), sample)[0], _outputs(plan.compile(), sample)[0]) < 1e-6


def test_nothing_granted_ships_float32(module: Any, records: Path) -> None:
    plan = collage.partition(
        module,
        backends=_BACKENDS,
        max_error=0.0,
        calibration=_samples(0, 6),
        records=records,
        threads=1,
        effort="quick",
    )
    assert plan.accuracy is not None and plan.accuracy.predicted == 0.0
    assert all(p.backend != "openvino-bf16" and not p.int8 for p in plan.partitions)


def test_a_metric_of_the_user_judges(module: Any, records: Path) -> None:
    samples = _samples(3, 4)
    exact = collage.partition(module, backends=["tvm"], confirm_end_to_end=False, effort="quick", threads=1).compile()
    labels = [int(np.argmax(out[0])) for out in _outputs(exact, samples)]
    plans = [
        collage.partition(
            module,
            backends=_BACKENDS,
            metric=lambda outputs, label: float(np.argmax(outputs[0]) == label),
            max_drop=limit,
            calibration=_samples(0, 4),
            validation=(samples, labels),
            records=records,
            threads=1,
            effort="quick",
        )
        for limit in (0.6, 0.01)
    ]
    loose, tight = (plan.accuracy for plan in plans)
    assert loose is not None and loose.metric and loose.judged > 0
    assert all(0.52 < p.upper < 0.53 for p in plans[0].frontier if p.measured == 0.0), "4 samples show no more"
    assert tight is not None and tight.predicted == 0.0, "and not that the drop is below 0.01"
    assert all(p.backend != "openvino-bf16" and not p.int8 for p in plans[1].partitions)


def test_a_second_budget_measures_nothing_again(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are parts of the network that errors were measured on, candidates that were timed, and runs of the whole
    network in float32.
    """
    errors: list[object] = []
    timed: list[object] = []
    runs: list[object] = []
    effects, estimate, run = _Part.effects, _DeviceEstimator.estimate, ReferenceRun._run

    def counted_effects(self: Any, *arguments: Any) -> Any:
        errors.append(self)
        return effects(self, *arguments)

    def counted_estimate(self: Any, workloads: Any) -> Any:
        timed.extend((w.structure, w.backend.name, w.composites) for w in workloads)
        return estimate(self, workloads)

    def counted_run(self: Any, program: Any) -> Any:
        runs.append(self)
        return run(self, program)

    monkeypatch.setattr(ReferenceRun, "_run", counted_run)
    monkeypatch.setattr(_Part, "effects", counted_effects)
    monkeypatch.setattr(_DeviceEstimator, "estimate", counted_estimate)
    found: list[tuple[int, int, int]] = []
    for limit in (_LIMIT, _LIMIT / 3, _LIMIT):
        collage.partition(
            module,
            backends=["openvino"],
            estimator="measured",
            max_error=limit,
            calibration=_samples(0, 4),
            records=tmp_path / "records.sqlite",
            threads=1,
            confirm_end_to_end=False,
        )
        found.append((len(errors), len(timed), len(runs)))
    assert min(found[0]) > 0
    assert found[1][0] == found[2][0] == found[0][0], "errors of operators are measured once"
    assert len(set(timed)) == len(timed), "candidates are measured once"
    assert found[2] == found[1], "a budget that was there before measures nothing at all"


def test_wrong_samples_and_metrics_are_one_line(module: Any) -> None:
    with pytest.raises(ModelInputError, match="not finite"):
        collage.partition(module, max_error=0.1, calibration=[np.full((1, 32, 40, 40), np.nan, np.float32)] * 2)
    with pytest.raises(CollageError, match="needs calibration"):
        collage.partition(module, max_error=0.1)
