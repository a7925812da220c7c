"""Small Relax networks for the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax


def convolution_relu(channels: int = 8, extent: int = 14) -> Any:
    """conv2d and relu on a 1 x channels x extent x extent tensor."""
    rng = np.random.default_rng(0)
    x = relax.Var("x", relax.TensorType((1, channels, extent, extent), "float32"))
    weight = relax.const(rng.standard_normal((channels, channels, 3, 3), dtype=np.float32))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.conv2d(x, weight, padding=(1, 1)))
            result = builder.emit_output(relax.op.nn.relu(value))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def long_softmax(length: int) -> Any:
    """softmax over one row, of which half is equal: every addend of its sum is rounded to the same side."""
    x = relax.Var("x", relax.TensorType((1, length), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.clip(x, 0.0, 0.1))
            result = builder.emit_output(relax.op.nn.softmax(value))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())
