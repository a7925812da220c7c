"""Sketch: small networks written down layer by layer, whose sizes are drawn.

Weights are random numbers scaled by their fan-in (He et al. 2015), so that activations stay of one magnitude however
many layers follow each other, and results can be compared with a reference. A layer that would be larger than what is
worth measuring is made narrower.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.frontend.values import static_shape

#: Floating-point operations of one anchor, and elements of one activation, beyond which layers are made narrower.
MOST_FLOPS, MOST_ELEMENTS = 3e9, 1 << 22
#: Height and width of images inside networks; the usual ones more often.
EXTENTS = (7, 7, 8, 10, 12, 14, 14, 16, 20, 24, 28, 28, 32, 40, 48, 56, 56, 64, 80, 112)
_BLOCK = 1 << 16


class Sketch:
    """A network in the making.

    Parameters
    ----------
    rng
        Draws sizes and alternatives.
    most_flops
        Of one anchor; wider layers are made narrower.
    """

    def __init__(self, rng: random.Random, most_flops: float = MOST_FLOPS) -> None:
        self.rng = rng
        self.most_flops = most_flops
        self._inputs: list[Any] = []
        self._bindings: list[Any] = []
        self._builder = relax.BlockBuilder()

    def input(self, shape: Sequence[int], dtype: str = "float32") -> Any:
        var = relax.Var(f"x{len(self._inputs)}", relax.TensorType(tuple(map(int, shape)), dtype))
        self._inputs.append(var)
        return var

    def image(self, low: int, high: int) -> Any:
        """An input of so many channels, on two axes."""
        extent = self.rng.choice(EXTENTS)
        most = max(low, min(high, MOST_ELEMENTS // 2 // (extent * extent)))
        return self.input((1, self.size(low, most), extent, extent))

    def volume(self, low: int, high: int) -> Any:
        """An input of so many channels, on three axes, the first of which is time."""
        extent = self.rng.choice((4, 4, 7, 7, 8, 14, 14, 16, 28, 28, 32, 56))
        frames = self.rng.choice((1, 1, 2, 2, 4, 4, 8, 8, 16))
        most = max(low, min(high, MOST_ELEMENTS // (extent * extent * frames)))
        return self.input((1, self.size(low, most), frames, extent, extent))

    def emit(self, call: Any) -> Any:
        """Bind a call; its value, for later calls. Raises what type inference raises where shapes do not fit."""
        value = self._builder.normalize(call)
        var = relax.Var(f"v{len(self._bindings)}", value.ty)
        self._bindings.append(relax.VarBinding(var, value))
        return var

    def module(self, *results: Any) -> Any:
        """The network, for `collage.load`."""
        body = results[0] if len(results) == 1 else relax.Tuple(results)
        result = self._builder.normalize(body)
        seq = relax.SeqExpr([relax.DataflowBlock(self._bindings)], result)
        main = relax.Function(self._inputs, seq, result.ty, is_pure=True).with_attr("global_symbol", "main")
        return relax.transform.Normalize()(tvm.IRModule({relax.GlobalVar("main"): main}))

    def size(self, low: int, high: int) -> int:
        """A width, log-uniform between the two; mostly a multiple of 8, as in most networks."""
        drawn = 2.0 ** self.rng.uniform(math.log2(low), math.log2(high))
        step = self.rng.choice((8, 8, 8, 16, 4, 1)) if drawn >= 16 else 1
        return max(low, int(step * round(drawn / step)))

    def weight(self, *shape: int, fan_in: int | None = None) -> Any:
        scale = math.sqrt(2.0 / (fan_in or max(1, math.prod(shape[1:]))))
        return relax.const((scale * np.resize(_normals(), shape)).astype(np.float32))

    def bias(self, x: Any, axis: int) -> Any:
        """`x` plus one number for each position of an axis, which counts from the end."""
        shape = [shape_of(x)[axis], *[1] * (-axis - 1)]
        if -axis < len(shape_of(x)) and axis != -1:
            shape = [1, *shape]
        return self.emit(relax.op.add(x, relax.const(0.1 * np.resize(_normals(), shape).astype(np.float32))))

    def convolution(
        self, x: Any, out: int, kernel: Sequence[int], stride: int = 1, groups: int = 1, biased: bool = True
    ) -> Any:
        """A convolution over as many axes as the kernel has, padded to keep the extents, and its bias."""
        _, channels, *extents = shape_of(x)
        window = math.prod(kernel)
        positions = math.prod(-(-e // stride) for e in extents)
        if groups == 1:
            each = 2.0 * channels * window * positions
            while out > 8 and (out * each > self.most_flops or out * positions > MOST_ELEMENTS):
                out //= 2
        op = relax.op.nn.conv2d if len(kernel) == 2 else relax.op.nn.conv3d
        padding = tuple(k // 2 for k in kernel)
        w = self.weight(out, channels // groups, *kernel)
        y = self.emit(op(x, w, (stride,) * len(kernel), padding * 2, groups=groups))
        return self.bias(y, -len(kernel) - 1) if biased else y

    def activation(self, x: Any, names: Sequence[str] = ("relu", "relu", "clip", "silu", "none")) -> Any:
        """One of the named non-linearities."""
        name = self.rng.choice(names)
        if name == "none":
            return x
        if name == "clip":
            return self.emit(relax.op.clip(x, 0.0, 6.0))
        if name == "silu":
            return self.emit(relax.op.multiply(x, self.emit(relax.op.sigmoid(x))))
        return self.emit({"relu": relax.op.nn.relu, "tanh": relax.op.tanh, "sigmoid": relax.op.sigmoid}[name](x))

    def pool(self, x: Any, window: int, stride: int, padded: bool = True) -> Any:
        """The maximum or the mean of windows over two axes or three; windows of odd size can be padded."""
        axes = len(shape_of(x)) - 2
        padding = (window // 2 if padded and window % 2 else 0,) * 2 * axes
        pools = (
            (relax.op.nn.max_pool2d, relax.op.nn.avg_pool2d)
            if axes == 2
            else (relax.op.nn.max_pool3d, relax.op.nn.avg_pool3d)
        )
        return self.emit(self.rng.choice(pools)(x, (window,) * axes, (stride,) * axes, padding))

    def linear(self, x: Any, out: int, biased: bool = True) -> Any:
        width = shape_of(x)[-1]
        y = self.emit(relax.op.matmul(x, self.weight(width, out, fan_in=width)))
        return self.bias(y, -1) if biased else y

    def add(self, a: Any, b: Any) -> Any:
        return self.emit(relax.op.add(a, b))

    def norm(self, x: Any) -> Any:
        width = shape_of(x)[-1]
        gamma, beta = np.full(width, 0.9, np.float32), np.full(width, 0.1, np.float32)
        return self.emit(relax.op.nn.layer_norm(x, relax.const(gamma), relax.const(beta), axes=[-1]))

    def scalar(self, value: float) -> Any:
        return relax.const(np.float32(value))


def shape_of(x: Any) -> tuple[int, ...]:
    """Raises ValueError for a value that is no tensor of static shape."""
    shape = static_shape(x.ty)
    if shape is None:
        raise ValueError(f"no tensor of static shape: {x.ty}")
    return shape


@cache
def _normals() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(_BLOCK - 3).astype(np.float32)
