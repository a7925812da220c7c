"""Quantisation: converters of the operators, and products and sums of float32 that are written in eight bits.

Such a product reads its data and its weights through pairs of QuantizeLinear and DequantizeLinear, which is how
libraries are told of eight bits (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html). Data
are quantised per tensor to uint8, from the range that was seen in calibration; weights symmetrically to int8, by
output channel. Of products of two data the second one, and a first one that has negative numbers, are symmetric in
int8. What is beyond the range is saturated.

Processors of x86-64 without instructions for it multiply bytes in pairs, and add up each pair in 16 bits, which
saturates. For them weights have so few steps that no pair does, as in ONNX Runtime's `reduce_range` (same page), and
products of two data are not in eight bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.annotations.precision import INT8_STEPS, LEAST_SCALE, UINT8_STEPS, int8_scale, uint8_steps
from collage.backends.onnx.export.between import Bytes, is_product_of_data, is_sum, is_transposed
from collage.backends.onnx.export.conversion import Conversion, Converter, Unsupported
from collage.backends.onnx.export.graph import GraphBuilder, Value, Values
from collage.runtime.device_info import describe_device

_BYTES = ("int8", "uint8")


def _quantize(c: Conversion) -> Value:
    c.require_dtype(("float32",))
    c.require(c.result.dtype in _BYTES, f"the result has dtype {c.result.dtype}")
    return _emit(c, "QuantizeLinear", c.result.dtype)


def _dequantize(c: Conversion) -> Value:
    c.require_dtype(_BYTES)
    c.require(c.result.dtype == "float32", f"the result has dtype {c.result.dtype}")
    return _emit(c, "DequantizeLinear", c.type(0).dtype)


def _emit(c: Conversion, op: str, dtype: str) -> Value:
    c.require_dtype(("float32",), 1)
    c.require_dtype((dtype,), 2)
    c.require(c.type(1).rank <= 1 and c.type(1).shape == c.type(2).shape, "scale and zero point are no vectors")
    return c.emit(op, c.value(0), c.value(1), c.value(2), axis=int(c.attrs.axis))


CONVERTERS: dict[str, Converter] = {"relax.quantize": _quantize, "relax.dequantize": _dequantize}

#: Products that can be in eight bits -> the axis of the weights' output channels.
_PRODUCTS = {
    **{f"relax.nn.conv{n}d": 0 for n in (1, 2, 3)},
    **{f"relax.nn.conv{n}d_transpose": 1 for n in (1, 2, 3)},
    "relax.matmul": 1,
}
#: So many products of bytes add up to a number of int32, whatever they are.
_MAX_TERMS = (2**31 - 1) // (UINT8_STEPS * INT8_STEPS)
#: What processors of x86-64 call instructions that add up products of bytes in 32 bits.
_EXACT_SUMS = frozenset(("avx512_vnni", "avx_vnni", "amx_int8"))
_PAIR_STEPS = (2**15 - 1) // (2 * UINT8_STEPS)


def int8_weight_steps() -> int:
    """The steps of weights on each side of 0, with which this machine's processor adds up products of bytes right."""
    device = describe_device("cpu")
    pairs = device.arch.lower() in ("x86_64", "amd64") and _EXACT_SUMS.isdisjoint(device.features)
    return _PAIR_STEPS if pairs else INT8_STEPS


def takes_int8(expr: Any, every: bool = False) -> bool:
    """Whether a call can be written in eight bits: a product of float32 with constant weights that are finite, where
    the terms add up to a number of int32; or a sum of two tensors.

    Parameters
    ----------
    every
        Whether a product of two data, and a transposed convolution of one group, can, too.
    """
    if is_sum(expr):
        return True
    if is_product_of_data(expr):
        exact = int8_weight_steps() == INT8_STEPS
        return every and exact and int(expr.args[0].ty.shape[-1]) <= _MAX_TERMS
    if not isinstance(expr, relax.Call) or getattr(expr.op, "name", "") not in _PRODUCTS:
        return False
    if is_transposed(expr) and not (every and int(expr.attrs.groups) == 1):
        return False
    given, weights = expr.args[:2]
    dtypes = {str(getattr(value.ty, "dtype", "")) for value in (given, weights, expr)}
    if dtypes != {"float32"} or not isinstance(weights, tvm.ir.GenericConst):
        return False
    if expr.op.name == "relax.matmul" and (len(weights.ty.shape) != 2 or len(given.ty.shape) < 2):
        return False
    values = np.from_dlpack(weights.value)
    channels = values.shape[_PRODUCTS[expr.op.name]]
    return 0 < values.size <= _MAX_TERMS * channels and bool(np.isfinite(values.max()) and np.isfinite(values.min()))


@dataclass(frozen=True)
class Int8Conversion(Conversion):
    """A call that is written in eight bits: what its converter reads has been quantised.

    Attributes
    ----------
    data
        Operand -> how it is quantised. Of products, constants are weights.
    """

    data: Mapping[int, Bytes] = field(default_factory=dict)

    def value(self, index: int, like: str = "") -> Value:
        name = super().value(index, like)
        if index in self.data:
            return quantised_data(self.graph, name, self.data[index])
        weights = self.known(index) if self.call.op.name in _PRODUCTS else None
        return name if weights is None else _quantised_weights(self.graph, name, weights, _PRODUCTS[self.call.op.name])

    def values(self, index: int) -> Values:
        names = super().values(index)
        known = self.data.get(index)
        return names if known is None else tuple(quantised_data(self.graph, name, known) for name in names)


def quantised_data(graph: GraphBuilder, name: Value, held: Bytes) -> Value:
    """The data after quantisation; readers of one value share it."""
    operands = (name, *_steps(graph, held))
    return graph.once(("int8 data", *operands), lambda: _there_and_back(graph, *operands))


def already_quantised(graph: GraphBuilder, name: Value, held: Bytes) -> None:
    """Say that data are in eight bits: quantising them would change nothing."""
    graph.once(("int8 data", name, *_steps(graph, held)), lambda: name)


def _steps(graph: GraphBuilder, held: Bytes) -> tuple[Value, Value]:
    """Scale and zero."""
    try:
        scale, zero = (int8_scale(held.ends), 0) if held.signed else uint8_steps(held.ends)
    except ValueError as error:
        raise Unsupported(str(error)) from error
    kind = "int8" if held.signed else "uint8"
    return graph.constant(np.asarray(scale, "float32")), graph.constant(np.asarray(zero, kind))


def _there_and_back(graph: GraphBuilder, name: Value, scale: Value, zero: Value) -> Value:
    return graph.emit("DequantizeLinear", graph.emit("QuantizeLinear", name, scale, zero), scale, zero)


def _quantised_weights(graph: GraphBuilder, name: Value, weights: np.ndarray, axis: int) -> Value:
    """The weights as int8 with a scale for each output channel."""

    def write() -> Value:
        others = tuple(i for i in range(weights.ndim) if i != axis)
        most = int8_weight_steps()
        scale = np.maximum(np.abs(weights).max(axis=others, keepdims=True) / most, LEAST_SCALE).astype(np.float32)
        steps = np.clip(np.rint(weights / scale), -most, most).astype(np.int8)
        zeros = np.zeros(scale.size, dtype=np.int8)
        scales = graph.constant(scale.reshape(-1))
        return graph.emit("DequantizeLinear", graph.constant(steps), scales, graph.constant(zeros), axis=axis)

    return graph.once(("int8 weights", name, axis), write)
