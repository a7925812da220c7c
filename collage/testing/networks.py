"""Small real networks for the suites: convolutions, attention, branches and tuples, integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

op, nn = relax.op, relax.op.nn
Network = Callable[[], Any]


def convolutions() -> Any:
    """conv2d, bias, relu, a residual sum, and pooling, on a 1x8x12x12 tensor."""

    def body(emit: Any, x: Any) -> Any:
        value = emit(nn.conv2d(x, _weight(8, 8, 3, 3), padding=(1, 1)))
        value = emit(nn.relu(emit(op.add(value, _weight(1, 8, 1, 1)))))
        return emit(nn.max_pool2d(emit(op.add(value, x)), (2, 2), strides=(2, 2)))

    return _module(body, ((1, 8, 12, 12), "float32"))


def attention() -> Any:
    """Two products around a softmax, and a layer norm, on 16 vectors of 32."""

    def body(emit: Any, x: Any) -> Any:
        scores = emit(op.matmul(x, emit(op.permute_dims(emit(op.matmul(x, _weight(32, 32)))))))
        mixed = emit(op.matmul(emit(nn.softmax(scores, axis=-1)), x))
        one, zero = relax.const(np.ones(32, "float32")), relax.const(np.zeros(32, "float32"))
        return emit(nn.layer_norm(emit(op.add(mixed, x)), one, zero, axes=[-1]))

    return _module(body, ((16, 32), "float32"))


def branches() -> Any:
    """A split whose halves go different ways and are joined again."""

    def body(emit: Any, x: Any) -> Any:
        halves = emit(op.split(x, 2, axis=1))
        left = emit(op.sigmoid(emit(relax.TupleGetItem(halves, 0))))
        right = emit(op.exp(emit(relax.TupleGetItem(halves, 1))))
        joined = emit(relax.Tuple([left, right]))
        return emit(op.reshape(emit(op.concat(joined, axis=1)), (6, 16)))

    return _module(body, ((4, 24), "float32"))


def look_up() -> Any:
    """Rows of a table, taken by integers, scaled and summed."""

    def body(emit: Any, indices: Any) -> Any:
        rows = emit(op.take(_weight(10, 16), indices, axis=0))
        scaled = emit(op.multiply(rows, relax.const(np.float32(0.5))))
        return emit(op.sum(scaled, axis=[0]))

    return _module(body, ((7,), "int32"))


def one_operator() -> Any:
    """relu."""
    return _module(lambda emit, x: emit(nn.relu(x)), ((4, 8), "float32"))


#: Name -> what builds the network.
NETWORKS: Mapping[str, Network] = {
    "convolutions": convolutions,
    "attention": attention,
    "branches": branches,
    "look_up": look_up,
    "one_operator": one_operator,
}


def _module(body: Callable[[Any, Any], Any], spec: tuple[tuple[int, ...], str]) -> Any:
    """A canonical module of one input."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(*spec))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def _weight(*shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)
    return relax.const(values / np.float32(np.sqrt(np.prod(shape[1:]))))
