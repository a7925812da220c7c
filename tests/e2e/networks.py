"""Small Relax networks for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax


def convolution_relu(channels: int = 8, extent: int = 14) -> Any:
    """conv2d and relu on a 1 x channels x extent x extent tensor."""
    rng = np.random.default_rng(0)
    weight = relax.const(rng.standard_normal((channels, channels, 3, 3), dtype=np.float32))
    return _network(
        (1, channels, extent, extent), lambda x: relax.op.nn.conv2d(x, weight, padding=(1, 1)), relax.op.nn.relu
    )


def long_softmax(length: int) -> Any:
    """softmax over one row, of which half is equal: every addend of its sum is rounded to the same side."""
    return _network((1, length), lambda x: relax.op.clip(x, 0.0, 0.1), relax.op.nn.softmax)


def _network(shape: tuple[int, ...], first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Any:
    """Two operators, one after the other."""
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(second(builder.emit(first(x))))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())
