"""Networks of one CUTLASS partition each, with their float64 results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from product_cases import Case, Shape, constant, weight
from tvm import relax

op, nn = relax.op, relax.op.nn
_erf = np.vectorize(math.erf)


def _w(shape: Shape, seed: int = 100) -> np.ndarray:
    """The weight of a float32 network, in float64."""
    return weight(shape, "float32", seed).astype(np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    """The exact one."""
    return np.asarray(x / 2 * (1 + _erf(x / math.sqrt(2))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """By the tanh formula."""
    return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def scalar(value: float, like: Any) -> Any:
    """A constant of the tensor's dtype."""
    return relax.const(value, str(like.ty.dtype))


def _feed_forward(emit: Any, x: Any) -> Any:
    """As ONNX's exporters write BERT's GELU."""
    wide = emit(op.add(emit(op.matmul(x, constant((16, 24))(x))), constant((24,), 1)(x)))
    error = emit(op.erf(emit(op.divide(wide, scalar(math.sqrt(2), x)))))
    scaled = emit(op.multiply(wide, emit(op.add(error, scalar(1, x)))))
    return op.multiply(scaled, scalar(0.5, x))


def _tanh_formula(emit: Any, x: Any) -> Any:
    """As ONNX's exporters write GPT-2's GELU."""
    wide = emit(op.add(emit(op.matmul(x, constant((16, 24))(x))), constant((24,), 1)(x)))
    cube = emit(op.multiply(emit(op.power(wide, scalar(3, x))), scalar(0.044715, x)))
    tanh = emit(op.tanh(emit(op.multiply(emit(op.add(wide, cube)), scalar(math.sqrt(2 / math.pi), x)))))
    half = emit(op.multiply(wide, scalar(0.5, x)))
    return op.multiply(half, emit(op.add(tanh, scalar(1, x))))


def _bottleneck(emit: Any, x: Any, y: Any) -> Any:
    """The end of a residual block: a 1x1 convolution in NCHW, its bias, the block's input, ReLU."""
    convolution = emit(nn.conv2d(x, constant((16, 8, 1, 1))(x)))
    return nn.relu(emit(op.add(emit(op.add(convolution, constant((1, 16, 1, 1), 1)(x))), y)))


def _bottleneck_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(np.einsum("oc,nchw->nohw", _w((16, 8, 1, 1))[:, :, 0, 0], x) + _w((1, 16, 1, 1), 1) + y, 0)


def _strided(emit: Any, x: Any, y: Any) -> Any:
    """A convolution in NHWC with uneven padding, stride and dilation; an activation before the residual, one after."""
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    convolution = emit(
        nn.conv2d(x, constant((8, 3, 2, 8))(x), strides=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2), **layouts)
    )
    value = emit(nn.silu(emit(op.add(convolution, constant((8,), 1)(x)))))
    return op.clip(emit(op.add(y, value)), -1.5, 6)


def _strided_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    padded, kernel = np.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))), _w((8, 3, 2, 8))
    height, width = y.shape[1:3]
    value = sum(
        np.einsum("nhwc,oc->nhwo", padded[:, r : r + 2 * height : 2, 2 * s : 2 * s + width], kernel[:, r, s])
        for r in range(3)
        for s in range(2)
    )
    value = value + _w((8,), 1)
    return np.clip(value / (1 + np.exp(-value)) + y, -1.5, 6)


def _transposed(emit: Any, x: Any, y: Any) -> Any:
    return nn.gelu(emit(op.matmul(x, emit(op.permute_dims(y, [0, 2, 1])))))


def _pixels(emit: Any, x: Any) -> Any:
    convolution = emit(nn.conv2d(x, constant((16, 1, 1, 8))(x), data_layout="NHWC", kernel_layout="OHWI"))
    return nn.gelu_tanh(emit(op.add(convolution, constant((1, 1, 1, 16), 1)(x))))


ADD, ACT = "_add", "_activation"
CASES: Mapping[str, Case] = {
    "matmul": Case(
        "cutlass.matmul", ((6, 16),), lambda emit, x: op.matmul(x, constant((16, 8))(x)), lambda x: x @ _w((16, 8))
    ),
    "rows of a batch": Case(
        f"cutlass.matmul{ADD}{ACT}",
        ((2, 3, 16),),
        lambda emit, x: nn.relu(emit(op.add(constant((8,), 1)(x), emit(op.matmul(x, constant((16, 8))(x)))))),
        lambda x: np.maximum(x @ _w((16, 8)) + _w((8,), 1), 0),
    ),
    "batch": Case(
        f"cutlass.matmul{ADD}",
        ((2, 3, 4, 8), (2, 3, 8, 8), (2, 3, 4, 8)),
        lambda emit, x, y, z: op.add(z, emit(op.matmul(x, y))),
        lambda x, y, z: x @ y + z,
    ),
    "one matrix for all of a batch": Case(
        "cutlass.matmul", ((4, 8), (3, 8, 8)), lambda emit, x, y: op.matmul(x, y), lambda x, y: x @ y
    ),
    "transposed": Case(
        f"cutlass.matmul_transposed{ACT}",
        ((2, 4, 8), (2, 16, 8)),
        _transposed,
        lambda x, y: gelu(x @ y.transpose(0, 2, 1)),
    ),
    "bias and residual": Case(
        f"cutlass.matmul{ADD}{ADD}",
        ((6, 16), (6, 8)),
        lambda emit, x, y: op.add(emit(op.add(emit(op.matmul(x, constant((16, 8))(x))), y)), constant((8,), 1)(x)),
        lambda x, y: x @ _w((16, 8)) + y + _w((8,), 1),
    ),
    "feed forward": Case(
        f"cutlass.matmul{ADD}{ACT}", ((1, 4, 16),), _feed_forward, lambda x: gelu(x @ _w((16, 24)) + _w((24,), 1))
    ),
    "tanh formula": Case(
        f"cutlass.matmul{ADD}{ACT}", ((1, 4, 16),), _tanh_formula, lambda x: gelu_tanh(x @ _w((16, 24)) + _w((24,), 1))
    ),
    "bottleneck": Case(
        f"cutlass.conv2d{ADD}{ADD}{ACT}", ((2, 8, 4, 4), (2, 16, 4, 4)), _bottleneck, _bottleneck_reference
    ),
    "strided": Case(f"cutlass.conv2d{ADD}{ACT}{ADD}{ACT}", ((2, 7, 9, 8), (2, 4, 8, 8)), _strided, _strided_reference),
    "pixels": Case(
        f"cutlass.conv2d{ADD}{ACT}",
        ((2, 3, 5, 8),),
        _pixels,
        lambda x: gelu_tanh(np.einsum("nhwc,oc->nhwo", x, _w((16, 1, 1, 8))[:, 0, 0]) + _w((1, 1, 1, 16), 1)),
    ),
}
