"""Small networks with operators that Relax cannot say."""

from __future__ import annotations

from typing import Any

import numpy as np
from frontend_cases import BOOL, FLOAT, INT64, model, node, normal
from onnx import ModelProto, NodeProto, TensorProto, helper

UINT8 = TensorProto.UINT8
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(operator: str, direction: str = "forward", given: bool = True) -> ModelProto:
    """Two operators around a recurrent layer; `given`: initial states and sequence lengths, too."""
    steps, batch, wide, hidden = 6, 2, 5, 8
    ways = 2 if direction == "bidirectional" else 1
    weights = {
        "w": normal(ways, _GATES[operator] * hidden, wide) * 0.3,
        "r": normal(ways, _GATES[operator] * hidden, hidden) * 0.3,
        "b": normal(ways, 2 * _GATES[operator] * hidden) * 0.3,
        "lengths": np.array([6, 4], "int32"),
        "h": normal(ways, batch, hidden),
        "c": normal(ways, batch, hidden, seed=1),
    }
    operands = [
        "z",
        "w",
        "r",
        "b",
        *(["lengths", "h"] if given else []),
        *(["c"] if given and operator == "LSTM" else []),
    ]
    layer = node(operator, operands, ["y", "last"], hidden_size=hidden, direction=direction)
    nodes = [node("Relu", ["x"], ["z"]), layer, node("Tanh", ["y"], ["out"])]
    used = {name: array for name, array in weights.items() if name in operands}
    return model(nodes, {"x": (FLOAT, [steps, batch, wide])}, {"out": FLOAT, "last": FLOAT}, used)


def graph(name: str, nodes: list[NodeProto], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """A branch or a loop body."""
    sides = [
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in given.items()]
        for given in (inputs, outputs)
    ]
    return helper.make_graph(nodes, name, *sides)


def branch() -> ModelProto:
    """`If` whose branches read an activation and a weight of the graph around them."""
    result = {"r": (FLOAT, [2, 8])}
    then = graph("then", [node("MatMul", ["z", "w"], ["p"]), node("Neg", ["p"], ["r"])], {}, result)
    other = graph("else", [node("MatMul", ["z", "w"], ["p"]), node("Add", ["p", "b"], ["r"])], {}, result)
    nodes = [
        node("Relu", ["x"], ["z"]),
        node("ReduceSum", ["z"], ["s"], keepdims=0),
        node("Greater", ["s", "limit"], ["q"]),
        node("If", ["q"], ["y"], then_branch=then, else_branch=other),
        node("Tanh", ["y"], ["out"]),
    ]
    weights = {"w": normal(8, 8), "b": normal(8), "limit": np.array(5.0, "float32")}
    return model(nodes, {"x": (FLOAT, [2, 8])}, {"out": FLOAT}, weights)


def loop() -> ModelProto:
    """`Loop` over a state that keeps its shape, with a weight of the graph around it."""
    inputs = {"i": (INT64, []), "go": (BOOL, []), "state": (FLOAT, [2, 4])}
    body = [node("MatMul", ["state", "w"], ["p"]), node("Tanh", ["p"], ["next"]), node("Identity", ["go"], ["on"])]
    inner = graph("body", body, inputs, {"on": (BOOL, []), "next": (FLOAT, [2, 4])})
    nodes = [node("Relu", ["x"], ["z"]), node("Loop", ["n", "", "z"], ["y"], body=inner), node("Neg", ["y"], ["out"])]
    return model(nodes, {"x": (FLOAT, [2, 4])}, {"out": FLOAT}, {"n": np.array(3), "w": normal(4, 4)})


def quantised() -> ModelProto:
    """A convolution of bytes between a quantisation and its inverse."""
    weights = {
        "s": np.array(0.05, "float32"),
        "z": np.array(128, "uint8"),
        "w": np.random.default_rng(0).integers(-100, 100, (6, 3, 3, 3)).astype("int8"),
        "ws": np.array(0.01, "float32"),
        "wz": np.array(0, "int8"),
        "os": np.array(0.2, "float32"),
        "b": np.arange(6, dtype="int32") * 100,
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "os", "z", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("DequantizeLinear", ["c", "os", "z"], ["y"]),
        node("Relu", ["y"], ["out"]),
    ]
    return model(nodes, {"x": (FLOAT, [1, 3, 8, 8])}, {"out": FLOAT}, weights)


CASES = {
    "lstm": lambda: recurrent("LSTM", "bidirectional"),
    "lstm without states": lambda: recurrent("LSTM", given=False),
    "lstm backwards": lambda: recurrent("LSTM", "reverse"),
    "gru": lambda: recurrent("GRU", "bidirectional"),
    "rnn": lambda: recurrent("RNN"),
    "if": branch,
    "loop": loop,
    "quantised convolution": quantised,
}


def detector() -> ModelProto:
    """A convolution, boxes and scores of it, the boxes that are left by non-maximum suppression, and how many."""
    weights = {
        "w": normal(6, 3, 3, 3) * 0.3,
        "to_boxes": np.array([1, 4, 36], "int64"),
        "to_scores": np.array([1, 2, 36], "int64"),
        "count": np.array([10], "int64"),
        "overlap": np.array([0.5], "float32"),
        "least": np.array([0.1], "float32"),
        "last": np.array([2], "int64"),
        "axis": np.array([1], "int64"),
        "sizes": np.array([4, 2], "int64"),
    }
    nodes = [
        node("Conv", ["x", "w"], ["f"], pads=[1, 1, 1, 1]),
        node("Split", ["f", "sizes"], ["f4", "f2"], axis=1),
        node("Reshape", ["f4", "to_boxes"], ["b"]),
        node("Transpose", ["b"], ["boxes"], perm=[0, 2, 1]),
        node("Reshape", ["f2", "to_scores"], ["s"]),
        node("Sigmoid", ["s"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "count", "overlap", "least"], ["chosen"]),
        node("Gather", ["chosen", "last"], ["index"], axis=1),
        node("Squeeze", ["index", "axis"], ["flat"]),
        node("Gather", ["boxes", "flat"], ["picked"], axis=1),
        node("Shape", ["chosen"], ["number"]),
    ]
    outputs = {"picked": FLOAT, "number": INT64, "scores": FLOAT}
    return model(nodes, {"x": (FLOAT, [1, 3, 6, 6])}, outputs, weights)
