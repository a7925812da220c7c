"""`collage.partition` over two devices: plans cross when it pays, pinned places stay pinned, and numbers are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collage
from collage.api.effort import EFFORTS
from collage.backends.tvm.backend import TVMBackend
from collage.errors import BackendUnavailableError, FrontendError
from collage.measure.copies import copy_costs
from collage.planned.file import read
from collage.report.html import to_html
from collage.testing.fresh import run
from tests.collage.frontend.two_devices import two_devices
from tests.e2e.two_devices.backend import SecondDevice, SecondNative
from tests.e2e.two_devices.test_compiled import SHAPE, expected, network
from tests.e2e.two_devices.told import Told

DEVICES = ["cpu", "cpu:1"]


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


def test_the_first_device_has_the_inputs_and_may_have_no_native_backend(tmp_path: Path) -> None:
    plan = planned(network(), tmp_path, Told(copy=0.1, tvm=1.0, second=1.0), ["cpu:1", "cpu"])
    assert plan.device == "cpu:1"
    x = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    for output, wanted in zip(plan.compile()(x), expected(x), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)


def test_a_backend_of_a_device_that_is_not_given_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError, match="second runs on cpu:1, which is not among cpu, cpu:2"):
        planned(network(), tmp_path, Told(), ["cpu", "cpu:2"])


def test_the_plan_and_its_summary_say_what_is_copied_where(tmp_path: Path) -> None:
    plan = planned(two_devices(), tmp_path, Told(copy=0.001))
    assert [(c.source, c.target, c.operator, c.nbytes, c.seconds) for c in plan.copies] == [
        ("cpu", "cpu:1", "relax.nn.relu", 4 * 8 * 4, 0.001),
        ("cpu:1", "cpu", "relax.nn.relu", 4 * 8 * 4, 0.001),
    ]
    text = plan.summary()
    assert "Between devices: 2 copies, 256 bytes, 2 ms in the sum" in text
    assert any(line.split() == ["cpu", "cpu:1", "relu", "128", "1"] for line in text.splitlines())
    plan.save(tmp_path / "plan.json")
    assert read(tmp_path / "plan.json").copies == plan.copies
    assert "Between devices: 2 copies" in to_html(plan, "two devices")


@pytest.fixture(scope="module")
def confirmed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Measured on both devices, with native kernels of both, and run end to end with a correction."""
    effort = replace(EFFORTS["thorough"], race_rounds=3, final_rounds=3)
    records = tmp_path_factory.mktemp("confirmed") / "records.db"
    return collage.partition(
        two_devices(),
        [TVMBackend(), SecondNative(), SecondDevice()],
        devices=DEVICES,
        threads=1,
        effort=effort,
        correction_rounds=1,
        records=records,
    )


@pytest.mark.long
def test_candidates_of_both_devices_are_measured_and_the_plan_is_run(confirmed: Any) -> None:
    shipped = {p.backend: p for p in confirmed.partitions if p.backend != "host"}
    assert "tvm" in shipped and len(shipped) == 2
    assert all(p.cost.is_finite and p.cost.samples > 0 for p in shipped.values())
    assert confirmed.latency.is_finite and len(confirmed.copies) == 2


@pytest.mark.long
def test_what_copies_take_is_no_part_of_what_partitions_take(confirmed: Any) -> None:
    """So costs are corrected by runs over several devices, too."""
    found = confirmed.confirmation.of(confirmed.confirmation.shipped)
    assert len(found.partition_seconds) == len([p for p in confirmed.partitions if p.backend != "host"])
    assert 0 < confirmed.corrected_cost.seconds < 100 * confirmed.latency.seconds


def test_copies_are_measured() -> None:
    measured = copy_costs(DEVICES)
    assert set(measured) == {("cpu", "cpu:1"), ("cpu:1", "cpu")}
    assert all(len(line.measured) == 3 for line in measured.values())
