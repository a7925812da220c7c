"""Operators that Relax cannot say, through the whole of Collage: placed, compiled, exported, run in a fresh process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import collage
from collage.annotations.opaque import PREFIX
from collage.api.effort import EFFORTS
from collage.testing import fresh

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def everything() -> ModelProto:
    """An LSTM of two directions with states and lengths, a GRU, a branch and a loop that read the graph around them,
    non-maximum suppression, a convolution of bytes.
    """
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32") * 0.4

    weights = {
        "lw": normal(2, 32, 5), "lr": normal(2, 32, 8), "lb": normal(2, 64), "lengths": np.array([6, 4], "int32"),
        "h": normal(2, 2, 8), "c": normal(2, 2, 8), "rows": np.array([6, 2, 16]), "gw": normal(1, 24, 16),
        "gr": normal(1, 24, 8), "first": np.array([0]), "limit": np.array(0.3, "float32"), "w": normal(8, 8) * 2,
        "n": np.array(3), "as_boxes": np.array([1, 4, 4]), "flat": np.array([1, 4, 4]), "last": np.array([2]),
        "count": np.array([4]), "overlap": np.array([0.5], "float32"), "image": np.array([1, 1, 4, 4]),
        "s": np.array(0.02, "float32"), "z": np.array(128, "uint8"), "q": rng.integers(-90, 90, (2, 1, 3, 3), "int8"),
        "qs": np.array(0.01, "float32"), "qz": np.array(0, "int8"), "os": np.array(0.03, "float32"),
    }  # fmt: skip
    state = helper.make_tensor_value_info("r", FLOAT, [2, 8])
    then = helper.make_graph([_node("MatMul", "m w", "r")], "then", [], [state])
    other = helper.make_graph([_node("Neg", "m", "r")], "else", [], [state])
    body = helper.make_graph(
        [_node("MatMul", "a w", "p"), _node("Tanh", "p", "b"), _node("Identity", "go", "on")],
        "body",
        [
            helper.make_tensor_value_info(n, k, s)
            for n, k, s in (("i", INT64, []), ("go", BOOL, []), ("a", FLOAT, [2, 8]))
        ],
        [helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_value_info("b", FLOAT, [2, 8])],
    )
    nodes = [
        _node("Relu", "x", "x1"),
        _node("LSTM", "x1 lw lr lb lengths h c", "y", hidden_size=8, direction="bidirectional"),
        _node("Reshape", "y rows", "y1"),
        _node("GRU", "y1 gw gr", "g gh", hidden_size=8),
        _node("Squeeze", "gh first", "m"),
        _node("ReduceMax", "m", "top", keepdims=0),
        _node("Greater", "top limit", "yes"),
        _node("If", "yes", "k", then_branch=then, else_branch=other),
        _node("Loop", "n  k", "l", body=body),
        _node("Reshape", "l as_boxes", "boxes"),
        _node("ReduceSum", "boxes last", "total", keepdims=0),
        _node("Unsqueeze", "total first", "t1"),
        _node("Sigmoid", "t1", "scores"),
        _node("NonMaxSuppression", "boxes scores count overlap", "chosen"),
        _node("Reshape", "l image", "picture"),
        _node("QuantizeLinear", "picture s z", "bytes"),
        _node("QLinearConv", "bytes s z q qs qz os z", "conv", pads=[1, 1, 1, 1]),
        _node("DequantizeLinear", "conv os z", "d"),
        _node("Relu", "d", "out"),
    ]
    graph = helper.make_graph(
        nodes,
        "everything",
        [helper.make_tensor_value_info("x", FLOAT, [6, 2, 5])],
        [helper.make_tensor_value_info(n, k, None) for n, k in (("out", FLOAT), ("g", FLOAT), ("chosen", INT64))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def _node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(" "), outputs.split(), **attributes)


@dataclass(frozen=True)
class Placed:
    model: ModelProto
    plan: Any


@pytest.fixture(scope="module")
def placed() -> Placed:
    model = everything()
    effort = replace(EFFORTS["quick"], correction_rounds=0, race_rounds=2, final_rounds=2)
    backends = ["tvm", "openvino", "onnxruntime"]
    return Placed(model, collage.partition(model, backends=backends, threads=1, effort=effort))


def test_the_plan_covers_them_on_engines_and_says_what_depends_on_data(placed: Placed) -> None:
    where = {op: p.backend for p in placed.plan.partitions for op in p.operators if op.startswith(PREFIX)}
    assert set(where) == {f"onnx.{name}" for name in ("LSTM", "GRU", "If", "Loop", "NonMaxSuppression", "QLinearConv")}
    assert set(where.values()) <= {"openvino", "onnxruntime"}
    assert any("NonMaxSuppression" in note and "depend on data" in note for note in placed.plan.notes)
    untouched = next(c for c in placed.plan.confirmation.contestants if c.name == "untouched TVM")
    assert untouched.ratio is None


def test_exported_it_gives_what_onnx_runtime_gives_on_the_original(placed: Placed, tmp_path: Path) -> None:
    """In a process with nothing but the runtime."""
    path = tmp_path / "model.so"
    placed.plan.compile().export(path)
    x = np.random.default_rng(7).standard_normal((6, 2, 5)).astype("float32")
    np.savez(tmp_path / "in.npz", x)
    fresh.run("collage.testing.deployed_process", [str(path), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")])
    session = ort.InferenceSession(placed.model.SerializeToString(), providers=["CPUExecutionProvider"])
    out, states, chosen = session.run(None, {"x": x})
    with np.load(tmp_path / "out.npz") as data:
        ours = [data[name] for name in data.files]
    np.testing.assert_allclose(ours[0], out, atol=0.031)  # one step of its quantisation
    np.testing.assert_allclose(ours[1], states, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours[2], chosen)


def test_a_plan_is_found_again_for_the_network(placed: Placed, tmp_path: Path) -> None:
    placed.plan.save(tmp_path / "plan.json")
    again = collage.Plan.load(tmp_path / "plan.json", collage.load(placed.model))
    assert [p.nodes for p in again.partitions] == [p.nodes for p in placed.plan.partitions]
