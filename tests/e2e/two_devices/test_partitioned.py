"""`collage.partition` over two devices: plans cross when it pays, pinned places stay pinned, and numbers are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.cost.transition import Pair, Transition
from collage.errors import BackendUnavailableError, FrontendError
from collage.measure.copies import copy_costs
from collage.testing.fresh import run
from tests.collage.frontend.two_devices import two_devices
from tests.e2e.two_devices.backend import SecondDevice
from tests.e2e.two_devices.test_compiled import SHAPE, expected, network

DEVICES = ["cpu", "cpu:1"]


class Told(CostEstimator):
    """So much per operator by backend, and so much for a copy."""

    def __init__(self, copy: float = 1.0, tvm: float = 10.0, second: float = 1.0) -> None:
        self.copy, self.tvm, self.second = copy, tvm, second

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        assert len({w.backend.device for w in workloads}) <= 1
        return [Cost(getattr(self, w.backend.name) * len(w.operators)) for w in workloads]

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition]:
        return {}

    def copies(self, devices: Sequence[str]) -> Mapping[Pair, Transition]:
        return {(a, b): Transition(self.copy) for a in devices for b in devices if a != b}


def planned(model: Any, tmp_path: Path, estimator: Told, devices: Sequence[str] = DEVICES) -> Any:
    return collage.partition(
        model,
        ["tvm", SecondDevice()],
        estimator=estimator,
        devices=devices,
        threads=1,
        confirm_end_to_end=False,
        records=tmp_path / "records.db",
    )


def backends_of(plan: Any) -> set[str]:
    return {p.backend for p in plan.partitions} - {"host"}


@pytest.mark.parametrize(("copy", "used"), [(1.0, {"second"}), (100.0, {"tvm"})])
def test_a_plan_crosses_when_it_pays(copy: float, used: set[str], tmp_path: Path) -> None:
    plan = planned(network(), tmp_path, Told(copy))
    assert backends_of(plan) == used
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    for output, wanted in zip(plan.compile()(x), expected(x), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)


def test_pinned_places_stay_pinned_whatever_they_cost(tmp_path: Path) -> None:
    plan = planned(two_devices(), tmp_path, Told(copy=100.0))
    assert backends_of(plan) == {"tvm", "second"}
    assert {p.operators for p in plan.partitions if p.backend == "second"} == {("relax.add", "relax.nn.relu")}
    x = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
    model, given, taken = (tmp_path / name for name in ("model.so", "in.npz", "out.npz"))
    plan.compile().export(model)
    np.savez(given, x)
    run("collage.testing.deployed_process", [str(model), str(given), str(taken)])
    with np.load(taken) as outputs:
        np.testing.assert_allclose(outputs["arr_0"], np.exp(2 * np.maximum(x, 0)), rtol=1e-5)


def test_a_device_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match=r'values on cpu:1: give devices=\["cpu", "cpu:1"\]'):
        collage.partition(two_devices(), ["tvm"], confirm_end_to_end=False, records=tmp_path / "records.db")


def test_a_native_backend_of_another_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="of the first device only"):
        planned(network(), tmp_path, Told(), ["cpu:1", "cpu"])


def test_copies_are_measured() -> None:
    measured = copy_costs(DEVICES)
    assert set(measured) == {("cpu", "cpu:1"), ("cpu:1", "cpu")}
    assert all(len(line.measured) == 3 for line in measured.values())
