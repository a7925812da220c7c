"""Tuning: once per kernel, kept on disk, used where it wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm_partitions import f, partition, random_arrays

from collage.backends.tvm import metaschedule
from collage.backends.tvm.backend import CpuLowering, TVMBackend
from collage.backends.tvm.bench import bench_of
from collage.backends.tvm.lower import cpu_target, lower
from collage.backends.tvm.tuning_records import TunedKernel, TuningRecords, records_digest
from collage.errors import RecordsError

R = relax.op
TARGET = cpu_target(2)
ENTRY = TunedKernel("0123456789abcdef", 8, 2, 2e-3, 1e-3)


def matmul(rows: int = 24) -> Any:
    return partition(
        [f(rows, 40), f(40, 32), f(32)],
        lambda bb, x, w, b: R.nn.gelu(bb.emit(R.add(bb.emit(R.matmul(x, w)), b))),
    )


def kernels_of(modules: list[Any]) -> dict[str, Any]:
    return metaschedule.kernels_of(modules, CpuLowering(TARGET).kernels, "tvm")


def tune(modules: list[Any], folder: str, progress: Any = lambda _: None) -> list[TunedKernel]:
    return metaschedule.tune_kernels(kernels_of(modules), lambda: bench_of(TARGET), 8, folder, progress)


def run_tuned(module: Any, arrays: list[np.ndarray], folder: str) -> np.ndarray:
    lowered = lower(module, TARGET, folder)
    executable = tvm.compile(lowered, target=TARGET, relax_pipeline=tvm.transform.Sequential([]))
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*[tvm.runtime.tensor(a) for a in arrays])
    return np.asarray(result.numpy())


def test_equal_kernels_are_one() -> None:
    assert len(kernels_of([matmul(), matmul()])) == 1
    assert len(kernels_of([matmul(), matmul(16)])) == 2
    assert not metaschedule.kernels_of([matmul()], CpuLowering(TARGET).kernels, "tvm of another device")


@pytest.mark.slow
def test_tuning_is_done_once_and_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "tuning")
    said: list[str] = []
    results = tune([matmul(), matmul()], folder, said.append)
    assert len(results) == 1
    assert results[0].tuned is not None
    assert said == ["tuning kernel 1 of 1, 8 trials"]
    assert capfd.readouterr().out == ""
    assert tune([matmul()], folder) == []

    # The record is used where it wins; make it win, whatever the machine was doing.
    TuningRecords(folder).add(TunedKernel(results[0].kernel, 8, 2, 1.0, 1e-6))
    kernel = next(iter(kernels_of([matmul()]).values()))["main"]
    records = TuningRecords.open(folder)
    assert records is not None
    assert records.scheduled(kernel, TARGET) is not None
    arrays = random_arrays([f(24, 40), f(40, 32), f(32)])
    by_rules = run_tuned(matmul(), arrays, str(tmp_path / "empty"))
    np.testing.assert_allclose(run_tuned(matmul(), arrays, folder), by_rules, rtol=1e-4, atol=1e-5)


def test_a_record_that_loses_is_not_used(tmp_path: Path) -> None:
    assert ENTRY.wins
    assert not TunedKernel("a", 8, 2, 1e-3, 2e-3).wins
    assert not TunedKernel("a", 8, 2, 1e-3, 0.99e-3).wins
    assert not TunedKernel("a", 8, 2, 1e-3, None).wins


def test_the_digest_follows_what_is_built(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert records_digest(None) == records_digest(folder) == "none"
    TuningRecords(folder).add(TunedKernel("b", 8, 2, 1e-3, 2e-3))
    assert records_digest(folder) == "none"
    TuningRecords(folder).add(ENTRY)
    first = records_digest(folder)
    assert first != "none"
    assert TVMBackend(tuning_records=folder).configuration()["tuning"] == first
    TuningRecords(folder).add(TunedKernel("c", 8, 2, 2e-3, 1e-3))
    assert records_digest(folder) not in ("none", first)


def test_a_torn_last_line_is_dropped_and_a_broken_file_refused(tmp_path: Path) -> None:
    TuningRecords(tmp_path).add(ENTRY)
    path = tmp_path / "kernels.jsonl"
    whole = path.read_text()
    path.write_text(whole + whole[:20])
    assert list(TuningRecords(tmp_path).kernels) == [ENTRY.kernel]
    path.write_text("nonsense\n" + whole)
    with pytest.raises(RecordsError, match="line 1"):
        TuningRecords(tmp_path)


def test_tuning_needs_a_folder_and_trials(tmp_path: Path) -> None:
    TVMBackend(tuning_records=str(tmp_path / "tuning")).tune([matmul()], 2)
    assert not (tmp_path / "tuning").exists()
    with pytest.raises(RecordsError, match="folder"):
        TVMBackend(tune_trials=8).tune([matmul()], 2)
