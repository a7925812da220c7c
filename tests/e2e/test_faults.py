"""Invariant 5: a backend that fails, hangs or crashes costs one candidate, never the run; what was measured stays.

And what the machine is to blame for costs no candidate anything: afterwards the plan is the same.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import collage
from collage.backends.base import Backend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.backends.tvm.backend import TVMBackend
from collage.cost.estimator import Workload
from collage.records import RecordDatabase
from estimators.measured import MeasuredEstimator
from tests.e2e import faulty
from tests.e2e.efforts import EVERYTHING
from tests.e2e.networks import convolution_relu, long_softmax

pytestmark = pytest.mark.long

REASONS: dict[type[Backend], str] = {
    faulty.RaisesAtCodegen: "takes nothing at all",
    faulty.RaisesAtRun: "on fire",
    faulty.GivesWrongNumbers: "wrong result",
    faulty.SleepsForEver: "hangs",
    faulty.Aborts: "SIGABRT",
    faulty.AbortsAtLoad: "SIGABRT",
}
#: Run by its shell where nobody else sees what it mounts: a folder for temporary files that is full at once.
FULL_DISK = 'mount -t tmpfs -o size=16k none "$TMPDIR" && exec "$@"'
TUNE = [sys.executable, "-m", "tests.e2e.tune_small"]
BEST = "placement: [('onnxruntime', (2, 3))]"


def test_a_faulty_backend_costs_its_candidates_only(tmp_path: Path) -> None:
    module = convolution_relu()
    backends: list[Backend] = [*(cls() for cls in REASONS), ONNXRuntimeBackend()]
    workloads = [Workload.of_module(module, backend, threads=1) for backend in backends]
    estimator = MeasuredEstimator(records=tmp_path / "records.db", timeout_s=5.0)
    *bad, good = estimator.estimate(workloads)
    for cost, reason in zip(bad, REASONS.values(), strict=True):
        assert cost.is_invalid and reason in cost.reason
    assert good.is_finite and good.samples > 0
    with RecordDatabase(tmp_path / "records.db") as database:
        assert len(database) == len(workloads)
    assert [cost.reason for cost in estimator.estimate(workloads)] == [cost.reason for cost in (*bad, good)]


def test_a_compile_that_hangs_in_native_code_is_ended_and_one_that_is_lost_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "hangs").touch()
    cases: list[tuple[Backend, int]] = [  # blobs of equal networks would share one library
        (faulty.HangsAtCompile(str(tmp_path / "hangs")), 4),
        (faulty.KilledAtCompile(str(tmp_path / "compiler")), 8),
        (faulty.KilledAtRun(str(tmp_path / "timer")), 12),
    ]
    workloads = [Workload.of_module(convolution_relu(channels), backend) for backend, channels in cases]
    hung, recompiled, rerun = MeasuredEstimator(records=tmp_path / "records.db", timeout_s=5.0).estimate(workloads)
    assert hung.is_invalid and hung.reason == "does not compile within 5 s"
    assert recompiled.is_finite and (tmp_path / "compiler").exists()
    assert rerun.is_finite and (tmp_path / "timer").exists()


def test_a_candidate_that_was_measured_with_a_full_disk_is_not_condemned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = [Workload.of_module(convolution_relu(), ONNXRuntimeBackend())]
    estimator = MeasuredEstimator(records=tmp_path / "records.db")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        (cost,) = estimator.estimate(workloads)
    assert cost.is_unknown and "No space left" in cost.reason
    with RecordDatabase(tmp_path / "records.db") as database:
        assert len(database) == 0
    (cost,) = estimator.estimate(workloads)
    assert cost.is_finite


def test_what_is_right_is_not_condemned_by_a_reference_that_is_not(tmp_path: Path) -> None:
    """Where the length of a row is a prime, TVM's kernel and so the reference sum it in one chain, and lose digits."""
    module = long_softmax(120_121)
    backends: list[Backend] = [OpenVINOBackend(), ONNXRuntimeBackend(), TVMBackend()]
    estimator = MeasuredEstimator(records=tmp_path / "records.db")
    *others, native = estimator.estimate([Workload.of_module(module, backend, threads=1) for backend in backends])
    assert all(cost.is_finite for cost in others), [cost.reason for cost in others]
    assert native.is_invalid and native.reason.startswith("wrong result")


def test_a_plan_is_found_in_spite_of_faulty_backends(tmp_path: Path) -> None:
    model = convolution_relu()
    faults: list[Backend | str] = [faulty.GivesWrongNumbers(), faulty.RaisesAtRun(), "onnxruntime", "tvm"]
    plan = collage.partition(model, backends=faults, records=tmp_path / "records.db", threads=1, effort=EVERYTHING)
    used = {p.backend for p in plan.partitions}
    assert used <= {"onnxruntime", "tvm", "host"}
    outputs = plan.compile()(np.ones((1, 8, 14, 14), np.float32))
    assert np.isfinite(outputs).all()


def test_a_run_that_is_killed_goes_on_where_it_was_whatever_the_clock_says(tmp_path: Path) -> None:
    records = tmp_path / "records.db"
    with _started(records) as process:
        deadline = time.monotonic() + 300
        while not _digests(records) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.poll() is None, "it must be killed before it is done"
    first = _digests(records)

    with _started(records, "confirm") as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "end to end" in line or "placement" in line)
        assert "end to end" in said, "it must be killed while plans are run"
    second = _digests(records)
    assert first < second

    assert _tune(records, "confirm") == (BEST, 0)
    assert _digests(records) == second and not _condemned(records)

    later = tmp_path / "later.db"  # since these were written, the clock was set back
    with RecordDatabase(records) as database, RecordDatabase(later) as copy:
        copy.put_many([replace(record, timestamp="2126-01-01T00:00:00.000000+00:00") for record in database])
    assert _tune(later) == (BEST, 0)


@contextmanager
def _started(records: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that is killed at the end of the block."""
    litter = {**os.environ, "TMPDIR": str(records.parent)}  # what it had no time to remove goes with this folder
    with subprocess.Popen([*TUNE, str(records), *options], stdout=subprocess.PIPE, text=True, env=litter) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def test_two_runs_at_once_take_turns_and_find_the_same(tmp_path: Path) -> None:
    command = [*TUNE, str(tmp_path / "records.db")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for run in runs:
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0 and BEST in said
    assert not _condemned(tmp_path / "records.db")


@pytest.mark.skipif(not shutil.which("unshare"), reason="nothing can be mounted for one process")
def test_after_a_full_disk_the_plan_is_the_same(tmp_path: Path) -> None:
    records, folder = tmp_path / "records.db", tmp_path / "full"
    folder.mkdir()
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    if subprocess.run([*alone, "true"], env=environment, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    full = subprocess.run([*alone, *TUNE, str(records)], env=environment, capture_output=True, text=True, timeout=300)
    assert full.returncode == 0, full.stderr
    assert "No space left on device" in full.stdout
    assert not _condemned(records)
    assert _tune(records)[0] == BEST


def _tune(records: Path, *options: str) -> tuple[str, int]:
    """What it chose, and how many candidates it measured."""
    run = subprocess.run([*TUNE, str(records), *options], capture_output=True, text=True, check=True, timeout=300)
    print(run.stdout)  # its notes say why, where it chose otherwise
    *_, placement, _notes, measured = run.stdout.splitlines()
    return placement, int(measured.split()[-1])


def _digests(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with RecordDatabase(path) as database:
        return set(database.digests(kind="candidate"))


def _condemned(path: Path) -> list[str]:
    """Reasons of candidates that are recorded as Invalid."""
    with RecordDatabase(path) as database:
        return [record.reason for record in database if record.status == "invalid"]
