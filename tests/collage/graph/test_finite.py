"""Which values are known to be finite, and what that lets OpenVINO take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.onnx.openvino import unsupported_by_openvino
from collage.graph.from_relax import read_graph

IDS, PICTURE = relax.TensorType((2, 5), "int32"), relax.TensorType((2, 5, 4), "float32")


def constant(*values: float) -> Any:
    return relax.const(np.array(values, "float32"))


def maximum(of: Callable[[Any], Any], ty: Any = IDS) -> Any:
    """The node of the last maximum of a network."""
    builder, x = relax.BlockBuilder(), relax.Var("x", ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.max(builder.normalize(of(x)), axis=[1]))
        builder.emit_func_output(result)
    graph = read_graph(collage.load(builder.get()))
    return next(node for node in reversed(graph.nodes) if node.op == "relax.max")


def embedded(ids: Any) -> Any:
    table = relax.const(np.random.default_rng(0).standard_normal((9, 4)).astype("float32"))
    return op.take(table, ids, axis=0, mode="clip")


def normalised(ids: Any, epsilon: float) -> Any:
    x = embedded(ids)
    centred = op.subtract(x, op.mean(x, [-1], keepdims=True))
    variance = op.mean(op.multiply(centred, centred), [-1], keepdims=True)
    return op.divide(centred, op.sqrt(op.add(op.maximum(variance, constant(0.0)), constant(epsilon))))


FINITE: dict[str, Callable[[Any], Any]] = {
    "an embedding": embedded,
    "a product": lambda ids: op.tanh(op.matmul(embedded(ids), relax.const(np.ones((4, 3), "float32")))),
    "a norm": lambda ids: normalised(ids, 1e-3),
    "a maximum": lambda ids: op.max(embedded(ids), [2], keepdims=True),
}
PERHAPS_NOT: dict[str, Callable[[Any], Any]] = {
    "a quotient by what may be zero": lambda ids: normalised(ids, 0.0),
    "a root of what may be negative": lambda ids: op.sqrt(embedded(ids)),
    "a logarithm": lambda ids: op.log(op.abs(embedded(ids))),
    "a cast to fewer bits": lambda ids: op.astype(
        op.astype(op.add(embedded(ids), constant(-3.4e38)), "float16"), "float32"
    ),
    "masked": lambda ids: op.where(op.less(embedded(ids), constant(0.0)), constant(-np.inf), embedded(ids)),
}


@pytest.mark.parametrize("name", FINITE)
def test_openvino_takes_maxima_of_what_is_finite(name: str) -> None:
    node = maximum(FINITE[name])
    assert node.reads_finite and unsupported_by_openvino(node) is None


@pytest.mark.parametrize("name", PERHAPS_NOT)
def test_what_may_be_infinite_is_refused(name: str) -> None:
    node = maximum(PERHAPS_NOT[name])
    assert not node.reads_finite and "infinite" in str(unsupported_by_openvino(node))


def test_inputs_of_floating_point_may_be_infinite() -> None:
    assert not maximum(lambda x: op.add(x, constant(1.0)), PICTURE).reads_finite
