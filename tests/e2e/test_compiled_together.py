"""What is compiled for several candidates at once: what their backend shares among them, and the probes of pairs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collage.backends.base import Backend
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm.backend import TVMBackend
from collage.estimate import Workload
from collage.measure.protocol import Protocol
from collage.measure.transitions import transition_costs
from collage.progress import Reporter
from collage.records import RecordDatabase
from estimators.measured import MeasuredEstimator
from tests.e2e import faulty
from tests.e2e.networks import convolution_relu


class Prewarms(ONNXRuntimeBackend):
    """Remembers what it was asked for, and in which order; "prewarm" may fail."""

    name: ClassVar[str] = "prewarms"
    engine: ClassVar[str] = "onnxruntime"
    asked: ClassVar[list[str]] = []
    fails: ClassVar[bool] = False

    def prewarm(self, functions: Iterable[Any]) -> None:
        self.asked.append(" ".join(str(f.attrs["Codegen"]) for f in functions))
        if self.fails:
            raise RuntimeError("no space left")

    def engine_blob(self, function: Any) -> bytes:
        self.asked.append("blob")
        return super().engine_blob(function)


@pytest.mark.parametrize("fails", [False, True])
def test_a_backend_hears_of_all_candidates_before_it_makes_the_first(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prewarms, "asked", [])
    monkeypatch.setattr(Prewarms, "fails", fails)
    workloads = [Workload.of_module(convolution_relu(channels), Prewarms(), threads=1) for channels in (4, 8)]
    costs = MeasuredEstimator(records=tmp_path / "records.db").estimate(workloads)
    assert all(cost.is_finite for cost in costs)
    blobs = Prewarms.asked.index("prewarms prewarms") + 1
    assert Prewarms.asked[blobs:] == ["blob", "blob"]


def test_a_backend_that_takes_no_half_of_the_probe_has_no_transitions(tmp_path: Path) -> None:
    backends: list[Backend] = [ONNXRuntimeBackend(), TVMBackend(), faulty.RaisesAtCodegen()]
    quick = Protocol(weights="hot", span="call", min_samples=3, max_samples=3, time_limit_s=0.0)
    with RecordDatabase(tmp_path / "records.db") as records:
        costs = transition_costs(backends, 1, records, quick, Reporter())
        reasons = [record.reason for record in records if record.seconds is None]
    assert set(costs) == {("onnxruntime", "tvm"), ("tvm", "onnxruntime")}
    assert len(reasons) == 4 and all("takes nothing at all" in reason for reason in reasons)
