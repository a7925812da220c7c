"""The referee: its intervals hold, and it tells a slower model, a wrong one, and a rival's error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from benchmarks.referee.__main__ import Contestant, judge
from benchmarks.referee.intervals import ratio_interval


def contestant(name: str, latencies: list[float]) -> Contestant:
    return Contestant(name, None, rounds=[[x] for x in latencies])  # type: ignore[arg-type]


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_intervals_of_equals_hold_one_most_of_the_time(correlation: float) -> None:
    """Also where neighbouring rounds resemble each other."""
    rng = np.random.default_rng(0)
    missed, trials = 0, 200
    for trial in range(trials):
        noise = np.zeros((2, 61))
        for i in range(1, 61):
            noise[:, i] = correlation * noise[:, i - 1] + rng.normal(0, 0.05, 2)
        a, b = np.exp(noise)
        found = ratio_interval(a, b, seed=trial)
        missed += not found.low <= 1.0 <= found.high
    assert missed / trials < 0.13


def test_an_interval_tells_two_apart() -> None:
    rng = np.random.default_rng(0)
    slow, fast = 1.1 + rng.normal(0, 0.02, 31), 1.0 + rng.normal(0, 0.02, 31)
    found = ratio_interval(slow, fast)
    assert 1.05 < found.low < found.median < found.high < 1.15


def test_a_model_slower_than_the_best_rival_loses_unless_another_one_does_not() -> None:
    fast, slow = [1.0, 1.01, 0.99] * 10, [1.2, 1.21, 1.19] * 10
    rivals = [contestant("openvino", fast), contestant("onnxruntime", slow)]
    right = {c: 0.0 for c in ("openvino", "onnxruntime", "collage a", "collage b")}
    one = judge([*rivals, contestant("collage a", slow)], right, "onnxruntime")
    assert one["best rival"] == "openvino" and one["lost"] == ["collage a"] and not one["passed"]
    two = judge([*rivals, contestant("collage a", slow), contestant("collage b", fast)], right, "onnxruntime")
    assert two["lost"] == ["collage a"] and two["passed"]


def test_a_model_of_other_numbers_loses_however_fast_it_is() -> None:
    contestants = [contestant("openvino", [1.0] * 5), contestant("collage a", [0.5] * 5)]
    found = judge(contestants, {"openvino": 0.0, "collage a": 0.1}, "openvino")
    assert found["wrong"] == ["collage a"] and not found["passed"]


def test_engines_are_raced_in_processes_of_their_own(tmp_path: Path) -> None:
    shape = [4, 64]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "relu.onnx")
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks.referee", str(tmp_path / "relu.onnx"), "--rounds", "2"]
    subprocess.run([*command, "--seconds", "0.01", "--threads", "1", "-o", str(report)], check=True, timeout=120)
    found = json.loads(report.read_text())
    assert set(found["contestants"]) == {"openvino", "onnxruntime"}
    for facts in found["contestants"].values():
        assert len(facts["rounds"]) == 2 and all(len(r) >= 3 and min(r) > 0 for r in facts["rounds"])
    assert found["verdict"]["passed"] and max(found["errors"].values()) == 0.0
