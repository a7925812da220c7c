"""Small networks of one partition each, for the cuDNN backend; every one can be built in float32 and in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

op, nn = relax.op, relax.op.nn
Emit = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A network.

    Attributes
    ----------
    body: makes the result of `emit` and the inputs.
    shapes: of the inputs.
    label: of the pattern that takes all of it.
    expected: the result in NumPy, where TVM computes it in no other dtype than float32.
    """

    body: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    label: str
    expected: Callable[..., np.ndarray] | None = None

    def module(self, dtype: str = "float32") -> Any:
        """The network in A-normal form, its weights of this dtype."""
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(self.shapes)]
        with builder.function("main", params):
            with builder.dataflow():
                made = self.body(builder.emit, Weights(dtype), *params)
                result = builder.emit_output(made)
            builder.emit_func_output(result)
        return relax.transform.CanonicalizeBindings()(builder.get())

    def inputs(self) -> list[np.ndarray]:
        """Float32 values between -2 and 2."""
        rng = np.random.default_rng(1)
        return [rng.uniform(-2, 2, shape).astype(np.float32) for shape in self.shapes]

    def reference(self) -> np.ndarray:
        """The result in float64, by TVM's default pipeline or by NumPy."""
        if self.expected is not None:
            return self.expected(Weights("float64"), *(value.astype(np.float64) for value in self.inputs()))
        vm = relax.VirtualMachine(tvm.compile(self.module("float64"), target="llvm"), tvm.cpu())
        result: np.ndarray = vm["main"](*(tvm.runtime.tensor(v.astype(np.float64)) for v in self.inputs())).numpy()
        return result


class Weights:
    """Weights that are the same float32 numbers in every dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def array(self, *shape: int, low: float = -1.0) -> np.ndarray:
        rng = np.random.default_rng(sum(shape))
        return rng.uniform(low, 1, shape).astype(np.float32).astype(self.dtype)

    def __call__(self, *shape: int, low: float = -1.0) -> Any:
        return relax.const(self.array(*shape, low=low), self.dtype)


def _residual_block(emit: Emit, w: Weights, x: Any, y: Any) -> Any:
    value = emit(nn.conv2d(x, w(6, 4, 3, 3), strides=(2, 1), padding=(1, 1)))
    value = emit(op.add(value, w(1, 6, 1, 1)))
    return nn.relu(emit(op.add(y, value)))


def _channels_last(emit: Emit, w: Weights, x: Any, y: Any) -> Any:
    value = emit(nn.conv2d(x, w(6, 3, 3, 4), padding=(1, 1), data_layout="NHWC", kernel_layout="OHWI"))
    return nn.relu(emit(op.add(emit(op.add(value, w(6))), y)))


def _silu(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(op.add(emit(nn.conv2d(x, w(6, 4, 1, 1))), w(1, 6, 1, 1)))
    return op.multiply(value, emit(op.sigmoid(value)))


def _depthwise(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(nn.conv2d(x, w(8, 1, 3, 3), padding=(1, 1), groups=4))
    return op.clip(emit(op.add(value, w(1, 8, 1, 1))), 0, 1.5)


def _grouped(emit: Emit, w: Weights, x: Any) -> Any:
    return nn.conv2d(x, w(6, 2, 3, 2), strides=(1, 2), padding=(2, 0, 1, 1), dilation=(2, 1), groups=2)


def _hwio(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(nn.conv2d(x, w(3, 2, 4, 5), data_layout="NHWC", kernel_layout="HWIO"))
    return nn.leakyrelu(value, 0.1)


def _one_dimension(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(nn.conv1d(x, w(6, 4, 3), strides=2, padding=(1, 2), dilation=2))
    return nn.gelu(emit(op.add(value, w(1, 6, 1))))


def _three_dimensions(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(nn.conv3d(x, w(6, 4, 3, 1, 2), strides=(1, 2, 1), padding=(1, 0, 0)))
    return nn.relu(emit(op.add(value, w(1, 6, 1, 1, 1))))


def _transposed(emit: Emit, w: Weights, x: Any) -> Any:
    value = emit(nn.conv2d_transpose(x, w(4, 6, 4, 4), strides=(2, 2), padding=(1, 1), output_padding=(1, 0)))
    return op.tanh(emit(op.add(value, w(1, 6, 1, 1))))


def _transposed_groups(emit: Emit, w: Weights, x: Any) -> Any:
    return nn.conv2d_transpose(x, w(4, 3, 3, 2), strides=(1, 3), padding=(0, 1, 1, 0), groups=2, dilation=(2, 1))


def _layer_norm(emit: Emit, w: Weights, x: Any) -> Any:
    return nn.layer_norm(x, w(3, 8, low=0.5), w(3, 8), axes=[-2, -1], epsilon=1e-3)


def _layer_norm_of(w: Weights, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean((1, 2), keepdims=True)
    scale = w.array(3, 8, low=0.5) / np.sqrt((centred**2).mean((1, 2), keepdims=True) + 1e-3)
    return np.asarray(centred * scale + w.array(3, 8))


def _rms_norm_of(w: Weights, x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * w.array(8))


IMAGE, VOLUME = (2, 4, 9, 7), (1, 4, 5, 7, 6)

#: Name -> network. All but attention, which cuDNN computes in half precision only.
CASES: Mapping[str, Case] = {
    "convolution": Case(lambda emit, w, x: nn.conv2d(x, w(6, 4, 3, 3)), (IMAGE,), "cudnn.conv"),
    "residual block": Case(_residual_block, (IMAGE, (2, 6, 5, 7)), "cudnn.conv_add_add_act"),
    "channels last": Case(_channels_last, ((2, 9, 7, 4), (2, 9, 7, 6)), "cudnn.conv_add_add_act"),
    "gated": Case(_silu, (IMAGE,), "cudnn.conv_add_act"),
    "depthwise": Case(_depthwise, (IMAGE,), "cudnn.conv_add_act"),
    "grouped and dilated": Case(_grouped, (IMAGE,), "cudnn.conv"),
    "kernel of another layout": Case(_hwio, ((2, 9, 7, 4),), "cudnn.conv_act"),
    "one dimension": Case(_one_dimension, ((2, 4, 15),), "cudnn.conv_add_act"),
    "three dimensions": Case(_three_dimensions, (VOLUME,), "cudnn.conv_add_act"),
    "kernel as an input": Case(lambda emit, w, x, k: nn.conv2d(x, k), (IMAGE, (5, 4, 2, 2)), "cudnn.conv"),
    "transposed": Case(_transposed, (IMAGE,), "cudnn.conv_transpose_add_act"),
    "transposed in groups": Case(_transposed_groups, (IMAGE,), "cudnn.conv_transpose"),
    "maximum": Case(lambda emit, w, x: nn.max_pool2d(x, (3, 2), (2, 1), padding=(1, 0)), (IMAGE,), "cudnn.pool"),
    "maximum, rounded up": Case(
        lambda emit, w, x: nn.max_pool2d(x, (2, 2), (2, 2), ceil_mode=True), (IMAGE,), "cudnn.pool"
    ),
    "maximum of a volume": Case(
        lambda emit, w, x: nn.max_pool3d(x, (3, 3, 3), padding=(1, 1, 1)), (VOLUME,), "cudnn.pool"
    ),
    "mean": Case(lambda emit, w, x: nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), (IMAGE,), "cudnn.pool"),
    "mean, rounded up": Case(
        lambda emit, w, x: nn.avg_pool2d(x, (2, 3), (2, 2), padding=(0, 1), ceil_mode=True), (IMAGE,), "cudnn.pool"
    ),
    "mean with its padding": Case(
        lambda emit, w, x: nn.avg_pool2d(x, (3, 3), padding=(1, 1), count_include_pad=True), (IMAGE,), "cudnn.pool"
    ),
    "mean of channels last": Case(
        lambda emit, w, x: nn.avg_pool2d(x, (2, 2), (2, 2), layout="NHWC"), ((1, 6, 4, 5),), "cudnn.pool"
    ),
    "global mean": Case(lambda emit, w, x: op.mean(x, [2, 3], True), (IMAGE,), "cudnn.pool"),
    "global mean of channels last": Case(lambda emit, w, x: op.mean(x, [1, 2]), (IMAGE,), "cudnn.pool"),
    "adaptive mean": Case(lambda emit, w, x: nn.adaptive_avg_pool2d(x, (1, 1)), (IMAGE,), "cudnn.pool"),
    "softmax of rows": Case(lambda emit, w, x: nn.softmax(x, -1), ((2, 3, 8),), "cudnn.softmax"),
    "softmax of channels": Case(lambda emit, w, x: nn.softmax(x, 1), (IMAGE,), "cudnn.softmax"),
    "layer norm": Case(_layer_norm, ((4, 3, 8),), "cudnn.norm", _layer_norm_of),
    "rms norm": Case(
        lambda emit, w, x: nn.rms_norm(x, w(8), axes=[-1], epsilon=1e-3), ((4, 3, 8),), "cudnn.norm", _rms_norm_of
    ),
}
