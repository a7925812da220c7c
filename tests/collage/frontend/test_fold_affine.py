"""Batch normalisation, scales and shifts end up in the linear operator before them wherever that is sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frontend_cases import FLOAT, batch_norm_weights, check, model, node, normal, operators
from onnx import ModelProto, NodeProto

NORM = ["s", "b", "m", "v"]


def convolution_then_norm(
    operator: str, weight: np.ndarray, channels: int, extents: tuple[int, ...], bias: bool, **attributes: Any
) -> tuple[ModelProto, dict[str, np.ndarray]]:
    weights = {"w": weight, **batch_norm_weights(channels)}
    inputs = ["x", "w"]
    if bias:
        weights["c"] = normal(channels, seed=3)
        inputs.append("c")
    nodes = [
        node(operator, inputs, ["t"], **attributes),
        node("BatchNormalization", ["t", *NORM], ["y"], epsilon=1e-3),
    ]
    return model(nodes, {"x": (FLOAT, extents)}, {"y": FLOAT}, weights), {"x": normal(*extents, seed=4)}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("operator", "weight", "channels", "extents", "attributes", "relax_operator"),
    [
        ("Conv", (6, 4, 3), 6, (2, 4, 9), {"pads": [1, 1]}, "nn.conv1d"),
        ("Conv", (6, 4, 3, 3), 6, (2, 4, 9, 8), {"strides": [2, 2]}, "nn.conv2d"),
        ("Conv", (6, 2, 3, 3), 6, (1, 4, 9, 8), {"group": 2, "dilations": [2, 1]}, "nn.conv2d"),
        ("Conv", (4, 1, 3, 3), 4, (1, 4, 9, 8), {"group": 4, "pads": [1, 0, 1, 2]}, "nn.conv2d"),
        ("Conv", (6, 4, 3, 3, 2), 6, (1, 4, 5, 6, 7), {}, "nn.conv3d"),
        (
            "ConvTranspose",
            (4, 6, 3, 3),
            6,
            (1, 4, 5, 6),
            {"strides": [2, 2], "output_padding": [1, 1]},
            "nn.conv2d_transpose",
        ),
        ("ConvTranspose", (4, 3, 3, 3), 6, (1, 4, 5, 6), {"group": 2, "pads": [1, 1, 1, 1]}, "nn.conv2d_transpose"),
    ],
)
def test_norm_after_convolution_leaves_a_convolution_and_one_bias(
    operator: str,
    weight: tuple[int, ...],
    channels: int,
    extents: tuple[int, ...],
    attributes: dict[str, Any],
    relax_operator: str,
    bias: bool,
) -> None:
    proto, inputs = convolution_then_norm(operator, normal(*weight, seed=2), channels, extents, bias, **attributes)
    assert operators(check(proto, inputs)) == {relax_operator: 1, "add": 1}


def test_norm_after_a_fully_connected_layer_folds_too() -> None:
    weights = {"w": normal(8, 5), "c": normal(5), **batch_norm_weights(5)}
    nodes = [node("Gemm", ["x", "w", "c"], ["t"]), node("BatchNormalization", ["t", *NORM], ["y"])]
    mod = check(model(nodes, {"x": (FLOAT, [3, 8])}, {"y": FLOAT}, weights), {"x": normal(3, 8, seed=5)})
    assert operators(mod) == {"matmul": 1, "add": 1}


def test_spelled_out_normalisation_folds_as_well() -> None:
    """TensorFlow and Caffe exporters write it as subtraction, division, multiplication and addition."""
    weights = {"w": normal(6, 3, 3, 3), **{name: a.reshape(6, 1, 1) for name, a in batch_norm_weights(6).items()}}
    nodes = [
        node("Conv", ["x", "w"], ["t"]),
        node("Sub", ["t", "m"], ["t1"]),
        node("Div", ["t1", "v"], ["t2"]),
        node("Mul", ["s", "t2"], ["t3"]),
        node("Add", ["t3", "b"], ["y"]),
    ]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.conv2d": 1, "add": 1}


def test_a_convolution_with_a_second_reader_keeps_its_weights() -> None:
    weights = {"w": normal(6, 3, 3, 3), **batch_norm_weights(6)}
    nodes = [
        node("Conv", ["x", "w"], ["t"]),
        node("BatchNormalization", ["t", *NORM], ["n"]),
        node("Mul", ["t", "n"], ["y"]),
    ]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.conv2d": 1, "multiply": 2, "add": 1}


def test_a_biased_convolution_with_a_second_reader_keeps_its_weights() -> None:
    weights = {"w": normal(6, 3, 3, 3), "c": normal(6), **batch_norm_weights(6)}
    nodes = [node("Conv", ["x", "w", "c"], ["t"]), node("BatchNormalization", ["t", *NORM], ["y"])]
    mod = check(
        model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT, "t": FLOAT}, weights), {"x": normal(1, 3, 6, 6)}
    )
    assert operators(mod) == {"nn.conv2d": 1, "multiply": 1, "add": 2, "Tuple": 1}


def test_norm_with_nothing_linear_before_it_is_one_multiplication_and_one_addition() -> None:
    nodes = [node("Relu", ["x"], ["t"]), node("BatchNormalization", ["t", *NORM], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [2, 5, 4, 4])}, {"y": FLOAT}, batch_norm_weights(5))
    assert operators(check(proto, {"x": normal(2, 5, 4, 4)})) == {"nn.relu": 1, "multiply": 1, "add": 1}


def test_a_scale_that_is_no_number_per_channel_stays() -> None:
    weights = {"w": normal(6, 3, 3, 3), "k": normal(1, 6, 4, 4, seed=8)}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("Mul", ["t", "k"], ["y"])]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.conv2d": 1, "multiply": 1}


def test_a_scale_that_widens_the_result_stays() -> None:
    weights = {"w": normal(1, 3, 3, 3), "k": normal(1, 4, 1, 1, seed=8)}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("Mul", ["t", "k"], ["y"])]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.conv2d": 1, "multiply": 1}


def test_folding_rounds_once() -> None:
    """Statistics for which float32 arithmetic would lose half of the digits: mean * scale nearly cancels the shift."""
    channels = 4
    weights = {"w": normal(channels, 3, 1, 1), **batch_norm_weights(channels)}
    weights["s"] = np.full(channels, 1000.1, "float32")
    weights["m"] = np.full(channels, 123.456, "float32")
    exact = weights["s"].astype("float64") / np.sqrt(weights["v"].astype("float64") + 1e-5)
    weights["b"] = (weights["m"] * exact).astype("float32")
    nodes = [node("Conv", ["x", "w"], ["t"]), node("BatchNormalization", ["t", *NORM], ["y"])]
    proto = model(nodes, {"x": (FLOAT, [1, 3, 2, 2])}, {"y": FLOAT}, weights)
    mod = check(proto, {"x": normal(1, 3, 2, 2)})
    bias = mod["main"].body.blocks[0].bindings[1].value.args[1].value.numpy().reshape(-1)
    np.testing.assert_array_equal(bias, (weights["b"] - weights["m"] * exact).astype("float32"))


def test_zero_padding_moves_into_the_convolution() -> None:
    weights = {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0]), "w": normal(6, 3, 3, 3)}
    nodes = [node("Pad", ["x", "p"], ["t"]), node("Conv", ["t", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.conv2d": 1}


@pytest.mark.parametrize("pads", [[0, 1, 0, 0, 0, 0, 0, 0], [0, 0, -1, 0, 0, 0, 0, 0]])
def test_padding_that_a_convolution_cannot_do_stays(pads: list[int]) -> None:
    weights = {"p": np.array(pads), "w": normal(6, 3 + pads[1], 3, 3)}
    nodes: list[NodeProto] = [node("Pad", ["x", "p"], ["t"]), node("Conv", ["t", "w"], ["y"])]
    mod = check(model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, {"y": FLOAT}, weights), {"x": normal(1, 3, 6, 6)})
    assert operators(mod) == {"nn.pad": 1, "nn.conv2d": 1}
