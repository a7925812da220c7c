"""Floats of eight bits and less, and integers of four: inside of opaque nodes they are what ONNX says."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from frontend_cases import FLOAT, model, node, normal
from onnx import ModelProto, TensorProto, helper, numpy_helper

from collage.annotations.opaque import opaque_calls
from collage.backends.onnx.openvino import unsupported_by_openvino
from collage.errors import UnsupportedOperatorError
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun

KINDS = ("FLOAT8E4M3FN", "FLOAT8E5M2FNUZ", "INT4", "UINT4")


def there_and_back(kind: str) -> ModelProto:
    """Two readers of one narrow value; ONNX Runtime reshapes those of eight bits."""
    to = getattr(TensorProto, kind)
    between = node("Reshape", ["n", "shape"], ["m"]) if "8" in kind else node("Cast", ["n"], ["m"], to=to)
    nodes = [
        node("Relu", ["x"], ["z"]),
        node("Cast", ["z"], ["n"], to=to),
        between,
        node("Cast", ["m"], ["y"], to=FLOAT),
        node("Cast", ["n"], ["w"], to=FLOAT),
        node("Neg", ["w"], ["v"]),
    ]
    return model(nodes, {"x": (FLOAT, [4, 6])}, {"y": FLOAT, "v": FLOAT}, {"shape": np.array([6, 4])}, opset=21)


def by_onnx_runtime(proto: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, {"x": x})]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_a_narrow_type_stays_in_onnx(kind: str) -> None:
    proto = there_and_back(kind)
    module = load(proto)
    calls = list(opaque_calls(module["main"]))
    assert len(calls) == 2 and {"relax.nn.relu", "relax.negative"} <= {n.op for n in read_graph(module).nodes}
    assert all("eight bits or less" in (unsupported_by_openvino(call) or "") for call in calls)
    x = normal(4, 6) * 3
    found = ReferenceRun(module, read_graph(module), 1, [x]).outputs
    for got, want in zip(found, by_onnx_runtime(proto, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_weights_of_four_bits_become_what_they_stand_for() -> None:
    weights = np.arange(-8, 8).reshape(4, 4)
    nodes = [
        node("DequantizeLinear", ["w", "scale"], ["f"]),
        node("MatMul", ["x", "f"], ["y"]),
    ]
    proto = model(nodes, {"x": (FLOAT, [3, 4])}, {"y": FLOAT}, {"scale": np.array(0.5, "float32")}, opset=21)
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [4, 4], weights.ravel()))
    module = load(proto)
    assert not list(opaque_calls(module["main"])), "they are constants"
    x = normal(3, 4)
    (found,) = ReferenceRun(module, read_graph(module), 1, [x]).outputs
    np.testing.assert_allclose(found, x @ (weights * 0.5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_and_outputs_of_narrow_types_are_refused(kind: str) -> None:
    """There are no arrays of them."""
    to = getattr(TensorProto, kind)
    given = model([node("Cast", ["x"], ["y"], to=FLOAT)], {"x": (to, [4])}, {"y": FLOAT}, opset=21)
    made = model([node("Cast", ["x"], ["y"], to=to)], {"x": (FLOAT, [4])}, {"y": to}, opset=21)
    for proto, subject in ((given, "input 'x'"), (made, "output 'y'")):
        with pytest.raises(UnsupportedOperatorError, match=f"{subject} has dtype .*: not supported"):
            load(proto)


def test_a_stored_tensor_of_a_narrow_type_is_read() -> None:
    values = np.array([0.5, -1.0, 2.0, 448.0], "float32")
    proto = model(
        [node("Cast", ["w"], ["f"], to=FLOAT), node("Add", ["x", "f"], ["y"])],
        {"x": (FLOAT, [4])},
        {"y": FLOAT},
        opset=21,
    )
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, [4], values))
    module = load(proto)
    (found,) = ReferenceRun(module, read_graph(module), 1, [np.zeros(4, "float32")]).outputs
    np.testing.assert_array_equal(found, numpy_helper.to_array(proto.graph.initializer[0]).astype("float32"))
