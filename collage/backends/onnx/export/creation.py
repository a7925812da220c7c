"""Converters of operators that make tensors from nothing but a shape or a range."""

from __future__ import annotations

import numpy as np

from collage.backends.onnx.export.conversion import Conversion, Converter, table
from collage.backends.onnx.export.graph import Value


def _full(fill: float | None, like: bool) -> Converter:
    """A tensor of one value: `fill`, or operand 1."""

    def convert(c: Conversion) -> Value:
        result = c.result
        if fill is not None:
            value = c.scalar(fill, result.dtype)
        else:
            c.require(c.type(1).size == 1, "the fill value is no scalar")
            value = c.reshape(c.cast(c.value(1), c.type(1).dtype, result.dtype), [1] * len(result.shape))
        # The shape is static, but an input that nothing reads would be dropped from the model.
        shape = c.emit("Shape", c.value(0)) if like else c.graph.ints(result.shape)
        return c.emit("Expand", value, shape)

    return convert


def _arange(c: Conversion) -> Value:
    start, stop, step = (c.number(i) for i in range(3))
    return c.graph.constant(np.arange(start, stop, step, dtype=c.result.dtype))


CONVERTERS = table(
    ("relax.full", _full(None, like=False)),
    ("relax.full_like", _full(None, like=True)),
    ("relax.zeros", _full(0, like=False)),
    ("relax.zeros_like", _full(0, like=True)),
    ("relax.ones", _full(1, like=False)),
    ("relax.ones_like", _full(1, like=True)),
    ("relax.arange", _arange),
)
