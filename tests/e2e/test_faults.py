"""Invariant 5: a backend that fails, hangs or crashes costs one candidate, never the run; what was measured stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import collage
from benchmarks.workloads import build, random_inputs
from collage.backends.base import Backend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.tvm.backend import TVMBackend
from collage.estimate import Workload
from collage.records import RecordDatabase
from estimators.measured import MeasuredEstimator
from tests.e2e import faulty
from tests.e2e.networks import convolution_relu, long_softmax

CASES = [
    (faulty.RaisesAtCodegen, "takes nothing at all"),
    (faulty.RaisesAtRun, "on fire"),
    (faulty.GivesWrongNumbers, "wrong result"),
    (faulty.SleepsForEver, "hangs"),
    (faulty.Aborts, "SIGABRT"),
    (faulty.AbortsAtLoad, "SIGABRT"),
]


@pytest.mark.parametrize(("cls", "reason"), CASES, ids=[cls.name for cls, _ in CASES])
def test_a_faulty_backend_costs_its_candidates_only(cls: type[Backend], reason: str, tmp_path: Path) -> None:
    module = convolution_relu()
    backends: list[Backend] = [cls(), ONNXRuntimeBackend()]
    workloads = [Workload.of_module(module, backend, threads=1) for backend in backends]
    timeout_s = 5.0 if cls is faulty.SleepsForEver else 60.0  # a busy machine must not look like a hanging backend
    estimator = MeasuredEstimator(records=tmp_path / "records.db", timeout_s=timeout_s)
    bad, good = estimator.estimate(workloads)
    assert bad.is_invalid and reason in bad.reason
    assert good.is_finite and good.samples > 0
    with RecordDatabase(tmp_path / "records.db") as database:
        assert len(database) == 2
    assert estimator.estimate(workloads)[0].reason == bad.reason


def test_what_is_right_is_not_condemned_by_a_reference_that_is_not(tmp_path: Path) -> None:
    """Where the length of a row is a prime, TVM's kernel and so the reference sum it in one chain, and lose digits."""
    module = long_softmax(120_121)
    backends: list[Backend] = [OpenVINOBackend(), ONNXRuntimeBackend(), TVMBackend()]
    estimator = MeasuredEstimator(records=tmp_path / "records.db")
    *others, native = estimator.estimate([Workload.of_module(module, backend, threads=1) for backend in backends])
    assert all(cost.is_finite for cost in others), [cost.reason for cost in others]
    assert native.is_invalid and native.reason.startswith("wrong result")


def test_a_plan_is_found_in_spite_of_faulty_backends(tmp_path: Path) -> None:
    model = build("tiny_resnet")
    faults: list[Backend | str] = [faulty.GivesWrongNumbers(), faulty.RaisesAtRun(), "onnxruntime", "tvm"]
    plan = collage.partition(model, backends=faults, records=tmp_path / "records.db", threads=1)
    used = {p.backend for p in plan.partitions}
    assert used <= {"onnxruntime", "tvm", "host"}
    outputs = plan.compile()(*random_inputs(model).values())
    assert np.isfinite(outputs).all()


def test_a_tuning_process_killed_in_mid_run_resumes_without_measuring_anything_twice(tmp_path: Path) -> None:
    records = tmp_path / "records.db"
    command = [sys.executable, "-m", "tests.e2e.tune_tiny", str(records)]
    litter = {**os.environ, "TMPDIR": str(tmp_path)}  # what it had no time to remove goes with this folder
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=litter)
    deadline = time.monotonic() + 300
    while _count(records) < 12 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is None, "it must be killed before it is done"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = _digests(records)
    assert len(before) >= 12

    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    after = _digests(records)
    measured = int(finished.stdout.split("measured:")[1].split()[0])
    assert before <= after
    assert measured == len(after) - len(before)

    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    assert int(again.stdout.split("measured:")[1].split()[0]) == 0


def _count(path: Path) -> int:
    return len(_digests(path)) if path.exists() else 0


def _digests(path: Path) -> set[str]:
    with RecordDatabase(path) as database:
        return set(database.digests(kind="candidate"))
