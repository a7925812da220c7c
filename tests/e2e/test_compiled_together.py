"""What is compiled for several candidates at once: what their backend shares among them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.cost.estimator import Workload
from estimators.measured import MeasuredEstimator
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
