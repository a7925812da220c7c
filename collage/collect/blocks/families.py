"""Families: what networks are made of, as training data for cost models that belongs to no network in particular.

A family is a kind of block (a residual bottleneck, a cell of many branches, an attention layer, a step of a recurrent
network, ...) whose sizes, depth and details are drawn. From every drawn block some candidates are measured, as if it
were a network, so that single operators, fused chains and whole regions are all there, on every backend that takes
them. Blocks of different families take turns: however early a collection stops, it has seen all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from collage.collect.blocks.operators import (
    convolutions,
    convolutions_3d,
    grouped,
    joined,
    matmuls,
    moves,
    pointwise,
    pools,
)
from collage.collect.blocks.sequences import attention, elementwise, embedding, encoder, feed_forward, recurrent
from collage.collect.blocks.sketch import EXTENTS, MOST_ELEMENTS, Sketch, shape_of
from collage.errors import CollageError

Family = Callable[[Sketch], tuple[Any, ...]]


def draw_network(seed: int, index: int, turns: Sequence[Family] | None = None) -> tuple[str, Any]:
    """The name of the family, and the module, of the block with this number, of families that take turns (None is
    `TURNS`); the same for the same arguments.
    """
    turns = turns or TURNS
    family = turns[index % len(turns)]
    sketch = Sketch(random.Random(f"{seed}.{index}"))
    return family.__name__, sketch.module(*family(sketch))


def families_named(names: Sequence[str] | None) -> tuple[Family, ...]:
    """The families of these names, in their order; `TURNS` for None. Raises CollageError for a name that is none's."""
    if names is None:
        return TURNS
    known = {family.__name__: family for family in TURNS}
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise CollageError(f"there is no family {', '.join(unknown) or 'without a name'}; there are {', '.join(known)}")
    return tuple(known[name] for name in names)


def plain(s: Sketch) -> tuple[Any, ...]:
    """One to four convolutions, one after the other."""
    x = s.image(3, 512)
    for _ in range(s.rng.choice((1, 1, 2, 3, 4))):
        kernel = s.rng.choice((1, 1, 3, 3, 3, 5, 7))
        x = s.activation(s.convolution(x, s.size(8, 768), (kernel, kernel), s.rng.choice((1, 1, 1, 2))))
    return (x,)


def bottleneck(s: Sketch) -> tuple[Any, ...]:
    """Residual blocks (He et al. 2016); with grouped convolutions those of ResNeXt (Xie et al. 2017)."""
    x = s.image(32, 512)
    width = s.size(16, 256)
    grouped = s.rng.random() < 0.5
    for _ in range(s.rng.choice((1, 2, 3))):
        x = _bottleneck(s, x, width, s.rng.choice((1, 1, 1, 2)), grouped)
    return (x,)


def basic(s: Sketch) -> tuple[Any, ...]:
    """Residual blocks of two 3 x 3 convolutions."""
    x = s.image(16, 256)
    for _ in range(s.rng.choice((1, 2))):
        y = s.activation(s.convolution(x, shape_of(x)[1], (3, 3)), ("relu",))
        y = s.convolution(y, shape_of(x)[1], (3, 3))
        if shape_of(y) != shape_of(x):
            return (y,)
        x = s.activation(s.add(y, x), ("relu",))
    return (x,)


def inverted(s: Sketch) -> tuple[Any, ...]:
    """Inverted residual blocks with depthwise convolutions (Sandler et al. 2018)."""
    x = s.image(8, 192)
    names = (s.rng.choice(("clip", "relu", "silu")),)
    for _ in range(s.rng.choice((1, 2, 3))):
        x = _inverted(s, x, names, s.rng.choice((1, 1, 2)))
    return (x,)


def separable(s: Sketch) -> tuple[Any, ...]:
    """Depthwise and pointwise convolutions, alternating (Chollet 2017)."""
    return (_separable(s, s.image(8, 384), s.rng.choice((3, 5, 7)), s.rng.choice((1, 2)), s.rng.choice((1, 1, 2))),)


def cell(s: Sketch) -> tuple[Any, ...]:
    """Cells of many branches, each a sum of two, joined by a concatenation (Zoph et al. 2018, Liu et al. 2019)."""
    channels, extent = s.size(8, 96), s.rng.choice(EXTENTS[:16])
    before, now = s.input((1, channels, extent, extent)), s.input((1, channels, extent, extent))
    for _ in range(s.rng.choice((1, 1, 2, 3))):
        before, now = now, _cell(s, before, now, channels)
    return (s.activation(now, ("relu",)),) if now is not before else (now,)


def inception(s: Sketch) -> tuple[Any, ...]:
    """Convolutions of several sizes side by side (Szegedy et al. 2015)."""
    x = s.image(16, 384)
    parts = [s.activation(s.convolution(x, s.size(8, 128), (1, 1)), ("relu",))]
    for kernel in s.rng.sample((3, 5, 3, 7), s.rng.choice((1, 2, 3))):
        y = s.activation(s.convolution(x, s.size(8, 96), (1, 1)), ("relu",))
        parts.append(s.activation(s.convolution(y, s.size(8, 128), (kernel, kernel)), ("relu",)))
    if s.rng.random() < 0.7:
        parts.append(s.activation(s.convolution(s.pool(x, 3, 1), s.size(8, 96), (1, 1)), ("relu",)))
    return (s.emit(relax.op.concat(parts, 1)),)


def volume(s: Sketch) -> tuple[Any, ...]:
    """Convolutions over time and space (Tran et al. 2018), plain or as residual blocks."""
    x = s.volume(3 if s.rng.random() < 0.2 else 8, 1024)
    if s.rng.random() < 0.15 and shape_of(x)[2] > 1:
        x = s.emit(relax.op.nn.max_pool3d(x, (3, 3, 3), (2, 2, 2), (1,) * 6))
    if s.rng.random() < 0.5:
        width = s.size(16, 256)
        for _ in range(s.rng.choice((1, 1, 2))):
            x = _bottleneck(s, x, width, s.rng.choice((1, 1, 2)), False)
        return (x,)
    for _ in range(s.rng.choice((1, 2, 3))):
        kernel = s.rng.choice(((1, 1, 1), (3, 3, 3), (3, 3, 3), (1, 3, 3), (3, 1, 1), (5, 5, 5), (7, 7, 7)))
        x = s.activation(s.convolution(x, s.size(8, 512), kernel, s.rng.choice((1, 1, 2))), ("relu", "relu", "none"))
    return (x,)


def transposed(s: Sketch) -> tuple[Any, ...]:
    """Transposed convolutions that enlarge a picture, as in generators and decoders."""
    extent = s.rng.choice((1, 4, 4, 7, 8, 8, 14, 16, 16, 28, 32))
    x = s.input((1, s.size(16, 1024 if extent < 10 else 256), extent, extent))
    for number in range(s.rng.choice((1, 1, 2, 3, 4, 5))):
        windows = ((4, 2, 1, 0), (4, 2, 1, 0), (3, 2, 1, 1), (2, 2, 0, 0), (4, 1, 0, 0))
        kernel, stride, padding, extra = s.rng.choice(windows)
        _, channels, height, _ = shape_of(x)
        out = s.size(3 if number else 8, 512)
        flops = 2.0 * channels * (kernel * height) ** 2
        while out > 8 and (out * flops > 6e8 or out * (height * stride + 3) ** 2 > MOST_ELEMENTS):
            out //= 2
        w = s.weight(channels, out, kernel, kernel, fan_in=channels * kernel * kernel // stride**2)
        x = s.emit(relax.op.nn.conv2d_transpose(x, w, (stride, stride), (padding,) * 4, (extra, extra)))
        x = s.activation(s.bias(x, -3), ("relu", "relu", "tanh", "none"))
    return (x,)


def reduction(s: Sketch) -> tuple[Any, ...]:
    """What makes pictures smaller, with what surrounds it: pools, pads, slices, sums, a classifier."""
    x = s.image(8, 768)
    what = s.rng.choice(("pool", "pool", "sum", "factorised", "head", "head"))
    if what == "pool":
        return (s.pool(x, s.rng.choice((2, 3, 3, 5)), s.rng.choice((1, 2))),)
    if what == "sum":
        return (s.add(s.pool(x, 3, 1), s.input(shape_of(x))),)
    if what == "factorised":
        padded = s.emit(relax.op.nn.pad(x, (0, 0, 0, 0, 0, 1, 0, 1)))
        _, _, height, width = shape_of(padded)
        cut = s.emit(relax.op.strided_slice(padded, [2, 3], [1, 1], [height, width]))
        pooled = [s.emit(relax.op.nn.avg_pool2d(part, (1, 1), (2, 2))) for part in (x, cut)]
        parts = [s.convolution(part, s.size(8, 128), (1, 1), biased=False) for part in pooled]
        return (s.emit(relax.op.concat(parts, 1)),)
    x = s.emit(relax.op.mean(s.activation(x, ("relu", "none")), [2, 3], True))
    x = s.emit(relax.op.reshape(x, shape_of(x)[:2]))
    return (s.linear(x, s.size(10, 2048)),)


def stack(s: Sketch) -> tuple[Any, ...]:
    """Many blocks after each other: regions whose latency is not the sum of their operators' alone."""
    make = s.rng.choice(("bottleneck", "inverted", "separable", "plain", "grouped", "inception"))
    s.most_flops = 2e8
    x, width, names = s.image(16, 128), s.size(16, 128), ("relu", "clip")
    for _ in range(s.rng.choice((4, 5, 6, 8, 10, 12))):
        stride = 2 if s.rng.random() < 0.2 and shape_of(x)[-1] > 7 else 1
        if make == "bottleneck" or make == "grouped":
            x = _bottleneck(s, x, width, stride, make == "grouped")
        elif make == "inverted":
            x = _inverted(s, x, names[:1] if width % 2 else names[1:], stride)
        elif make == "separable":
            x = _separable(s, x, s.rng.choice((3, 5)), 1, stride)
        elif make == "plain":
            kernel = s.rng.choice((1, 3))
            x = s.activation(s.convolution(x, s.size(16, 256), (kernel, kernel), stride), ("relu",))
        else:
            parts = [s.activation(s.convolution(x, s.size(8, 64), (k, k), stride), ("relu",)) for k in (1, 3, 3)]
            x = s.emit(relax.op.concat(parts, 1))
    return (x,)


def _bottleneck(s: Sketch, x: Any, width: int, stride: int, grouped: bool) -> Any:
    """Reduces to a width, convolves, and widens again; over two axes or three."""
    axes = len(shape_of(x)) - 2
    groups = s.rng.choice([g for g in (2, 4, 8, 16, 32, 64) if width % g == 0 and g < width] or [1]) if grouped else 1
    y = s.activation(s.convolution(x, width, (1,) * axes), ("relu",))
    kept = shape_of(y)[1]
    y = s.activation(s.convolution(y, kept, (3,) * axes, stride, groups if kept % groups == 0 else 1), ("relu",))
    if stride == 1 and s.rng.random() < 0.7:
        y = s.convolution(y, shape_of(x)[1], (1,) * axes)
        short = x
    else:
        y = s.convolution(y, 4 * width, (1,) * axes)
        short = s.convolution(x, shape_of(y)[1], (1,) * axes, stride)
    return s.activation(s.add(y, short) if shape_of(y) == shape_of(short) else y, ("relu",))


def _inverted(s: Sketch, x: Any, names: tuple[str, ...], stride: int) -> Any:
    _, channels, height, width = shape_of(x)
    inner = min(channels * s.rng.choice((1, 2, 3, 4, 6)), max(channels, MOST_ELEMENTS // (height * width)))
    y = x if inner == channels else s.activation(s.convolution(x, inner, (1, 1)), names)
    inner, kernel = shape_of(y)[1], s.rng.choice((3, 3, 5))
    y = s.activation(s.convolution(y, inner, (kernel, kernel), stride, inner), names)
    y = s.convolution(y, channels if stride == 1 else s.size(channels, 2 * channels), (1, 1))
    return s.add(y, x) if shape_of(y) == shape_of(x) else y


def _separable(s: Sketch, x: Any, kernel: int, times: int, stride: int) -> Any:
    out = shape_of(x)[1] if s.rng.random() < 0.6 else s.size(8, 256)
    for _ in range(times):
        channels = shape_of(x)[1]
        y = s.activation(x, ("relu",))
        y = s.convolution(y, channels, (kernel, kernel), stride, channels, biased=False)
        x, stride = s.convolution(y, out, (1, 1)), 1
    return x


def _cell(s: Sketch, before: Any, now: Any, channels: int) -> Any:
    """Two states to the next one; both are brought to the cell's width first."""
    states = [
        x if shape_of(x)[1] == channels else s.convolution(s.activation(x, ("relu",)), channels, (1, 1))
        for x in (before, now)
    ]
    results = []
    for _ in range(s.rng.choice((2, 3, 4, 5))):
        pair = []
        for _ in range(2):
            x, what = s.rng.choice(states), s.rng.choice(("separable", "separable", "pool", "same", "same"))
            if what == "pool":
                x = s.pool(x, 3, 1)
            elif what == "separable":
                y = x
                for _ in range(s.rng.choice((1, 2))):
                    y = s.activation(y, ("relu",))
                    kernel = s.rng.choice((3, 5, 7))
                    y = s.convolution(y, channels, (kernel, kernel), 1, channels, biased=False)
                    y = s.convolution(y, channels, (1, 1))
                x = y
            pair.append(x)
        results.append(s.add(*pair))
        if s.rng.random() < 0.4:
            states.append(results[-1])
    return s.emit(relax.op.concat(results, 1))


#: Families in the order of their turns.
TURNS: tuple[Family, ...] = (
    volume, transposed, cell, inverted, recurrent, stack, plain, attention, separable, volume, bottleneck, feed_forward,
    reduction, transposed, elementwise, cell, recurrent, inverted, encoder, stack, inception, volume, elementwise,
    plain, bottleneck, embedding, basic, separable, pointwise, grouped, moves, convolutions, pointwise, joined, pools,
    convolutions_3d, matmuls,
)  # fmt: skip
