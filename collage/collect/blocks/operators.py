"""Families of single operators, at the sizes that they have inside networks.

See `collage.collect.blocks.families`. Of a large block few operators are measured alone, and those that are by the way
the least; but most candidates of a network are single operators and pairs, and what decides their latency (a tensor
that just fits into a cache, a row that does not fill a vector, a kernel of its own for some width of groups) needs many
sizes to be seen.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from collage.collect.blocks.sketch import EXTENTS, MOST_ELEMENTS, Sketch, shape_of

_ACTIVATIONS = ("relu", "relu", "relu", "clip", "silu", "sigmoid", "tanh")


def pointwise(s: Sketch) -> tuple[Any, ...]:
    """An addition, a product or an activation, as after a layer, or two of them."""
    x = _tensor(s)
    for _ in range(s.rng.choice((1, 1, 1, 2))):
        what = s.rng.choice(("bias", "bias", "tensor", "tensor", "tensor", "activation", "activation", "scale"))
        if what == "bias":
            x = s.bias(x, -1 if len(shape_of(x)) < 4 else 1 - len(shape_of(x)))
        elif what == "tensor":
            x = s.emit(s.rng.choice((relax.op.add, relax.op.add, relax.op.multiply))(x, s.input(shape_of(x))))
        elif what == "scale":
            x = s.emit(relax.op.multiply(x, s.scalar(0.5)))
        else:
            x = s.activation(x, _ACTIVATIONS)
    return (x,)


def pools(s: Sketch) -> tuple[Any, ...]:
    """A pool, of a picture as it comes or padded before, and sums with what it gives."""
    x = s.volume(8, 512) if s.rng.random() < 0.15 else s.image(8, 1024)
    window, stride = s.rng.choice(((1, 2), (2, 1), (2, 2), (3, 1), (3, 1), (3, 2), (3, 2), (5, 1), (5, 2)))
    _, channels, *extents = shape_of(x)
    padded = min(extents) < window or s.rng.random() < 0.5
    if not padded and s.rng.random() < 0.5:  # the odd extents that an asymmetric padding leaves
        x = s.input((1, channels, *(extent + 1 for extent in extents)))
    y = s.pool(x, window if min(extents) >= window else 1, stride, padded)
    for _ in range(s.rng.choice((0, 0, 1, 2))):
        other = s.input(shape_of(y))
        y = s.add(y, other) if s.rng.random() < 0.5 else s.add(other, y)
    return (y,)


def moves(s: Sketch) -> tuple[Any, ...]:
    """A mean, or a move of data: pad, slice, concatenation, permutation."""
    what = s.rng.choice(("mean", "pad", "slice", "concat", "concat", "permute"))
    x = s.volume(8, 512) if what == "mean" and s.rng.random() < 0.25 else s.image(8, 1024)
    _, channels, *extents = shape_of(x)
    if what == "mean":
        return (s.emit(relax.op.mean(x, list(range(2, 2 + len(extents))), s.rng.random() < 0.7)),)
    if what == "pad":
        return (s.emit(relax.op.nn.pad(x, (0, 0, 0, 0, *(s.rng.choice((0, 1, 2, 3)) for _ in range(3)), 1))),)
    if what == "slice":
        return (s.emit(relax.op.strided_slice(x, [2, 3], [1, 1], extents)),)
    if what == "concat":
        fewer = max(1, channels // 4)
        parts = [s.input((1, fewer, *extents)) for _ in range(s.rng.choice((1, 2, 3, 5)))]
        return (s.emit(relax.op.concat([x, *parts], 1)),)
    axes = s.rng.choice(((0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 1, 2)))
    return (s.emit(relax.op.permute_dims(x, axes)),)


def joined(s: Sketch) -> tuple[Any, ...]:
    """Sums and activations side by side, and their concatenation, as at the end of a cell of branches."""
    x = s.image(8, 512)
    shape, states, parts = shape_of(x), [x], []
    for _ in range(s.rng.choice((2, 3, 4, 4, 5, 6))):
        states.append(s.input(shape) if s.rng.random() < 0.7 else s.rng.choice(states))
        what = s.rng.choice(("sum", "sum", "sum", "pool", "activation", "same"))
        if what == "sum":
            parts.append(s.add(states[-1], s.rng.choice(states)))
        elif what == "pool":
            parts.append(s.add(s.pool(states[-1], 3, 1), s.rng.choice(states)))
        else:
            parts.append(s.activation(states[-1], ("relu",) if what == "activation" else ("none",)))
    return (s.activation(s.emit(relax.op.concat(parts, 1)), ("relu", "relu", "none")),)


def convolutions(s: Sketch) -> tuple[Any, ...]:
    """One convolution over two axes, dense or depthwise, with or without what follows it."""
    biased = s.rng.random() < 0.7
    if s.rng.random() < 0.25:
        x = s.image(16, 1280)
        window = s.rng.choice((3, 3, 5, 7))
        x = s.convolution(x, shape_of(x)[1], (window, window), s.rng.choice((1, 1, 2)), shape_of(x)[1], biased)
    else:
        window = s.rng.choice((1, 1, 1, 3, 3, 5))
        x = s.convolution(s.image(16, 2048), s.size(16, 2048), (window, window), s.rng.choice((1, 1, 1, 2)), 1, biased)
    return (_followed(s, x, ("relu", "relu", "clip", "none", "none")) if biased else x,)


def convolutions_3d(s: Sketch) -> tuple[Any, ...]:
    """One convolution over three axes, with or without what follows it."""
    biased = s.rng.random() < 0.7
    kernel = s.rng.choice(((1, 1, 1), (1, 1, 1), (1, 1, 1), (3, 3, 3), (3, 3, 3), (1, 3, 3), (3, 1, 1), (5, 5, 5)))
    x = s.convolution(s.volume(16, 2048), s.size(16, 2048), kernel, s.rng.choice((1, 1, 2)), 1, biased)
    return (_followed(s, x, ("relu", "relu", "none")) if biased else x,)


def matmuls(s: Sketch) -> tuple[Any, ...]:
    """One matrix product, of a vector or of many rows, and the gates that follow it."""
    rows = s.rng.choice((1, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 384))
    width, out = s.size(64, 4096), s.size(64, 4096)
    while width * out > MOST_ELEMENTS:
        out //= 2
    x = s.linear(s.input((1, rows, width) if rows > 1 and s.rng.random() < 0.5 else (rows, width)), out, False)
    x = s.bias(x, -1) if s.rng.random() < 0.4 else x
    for _ in range(s.rng.choice((0, 1, 1, 2, 3, 4))):
        what = s.rng.choice(("add", "add", "multiply", "activation", "activation"))
        if what == "activation":
            x = s.activation(x, ("sigmoid", "tanh", "relu"))
        else:
            x = s.emit((relax.op.add if what == "add" else relax.op.multiply)(x, s.input(shape_of(x))))
    return (x,)


def grouped(s: Sketch) -> tuple[Any, ...]:
    """Convolutions in groups, whose width decides the kernel that a library takes (Radosavovic et al. 2020)."""
    extent = s.rng.choice(EXTENTS)
    width, groups = s.rng.choice((2, 4, 4, 8, 8, 16, 16, 24, 32, 48, 64)), s.rng.choice((2, 4, 8, 16, 32, 32, 64))
    while groups > 2 and width * groups > min(2048, MOST_ELEMENTS // 2 // (extent * extent)):
        groups //= 2
    channels = width * groups
    alone = s.rng.random() < 0.5
    x = s.input((1, channels if alone else s.size(32, 512), extent, extent))
    for _ in range(s.rng.choice((1, 1, 2))):
        if not alone:
            x = s.activation(s.convolution(x, channels, (1, 1)), ("relu", "none"))
        if shape_of(x)[1] % groups:  # it has been made narrower
            groups = 8
        stride, out = s.rng.choice((1, 1, 1, 2)), shape_of(x)[1]
        x = s.convolution(x, out, (s.rng.choice((3, 3, 3, 5)),) * 2, stride, groups)
        x = s.activation(x, ("relu", "relu", "clip", "silu", "none"))
    return (x if alone else s.convolution(x, s.size(32, 512), (1, 1)),)


def _followed(s: Sketch, x: Any, names: tuple[str, ...]) -> Any:
    """Sometimes a residual connection, then one of the activations."""
    if s.rng.random() < 0.25:
        x = s.add(x, s.input(shape_of(x)))
    return s.activation(x, names)


def _tensor(s: Sketch) -> Any:
    """An input with the shape of an image, a clip of a film, or a sequence."""
    kind = s.rng.random()
    if kind < 0.55:
        return s.image(16, 2048)
    if kind < 0.75:
        return s.volume(16, 2048)
    if kind < 0.9:
        return s.input((1, s.rng.choice((16, 32, 64, 128, 256)), s.size(64, 4096)))
    return s.input((s.rng.choice((1, 1, 2, 4)), s.size(16, 4096)))
