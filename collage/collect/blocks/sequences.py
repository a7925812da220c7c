"""Families of blocks that work on sequences and on vectors: attention, feed-forward and recurrent layers, chains.

See `collage.collect.blocks.families`. Transformers (Vaswani et al. 2017) come with the norm before or after, with one
matrix for queries, keys and values or three, and with the ways in which GELU is written; recurrent layers as LSTM
(Hochreiter and Schmidhuber 1997) and as random trees of gates.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from collage.collect.blocks.sketch import Sketch, shape_of

_HEADS = (2, 4, 6, 8, 12, 16)
_UNARY = (
    relax.op.nn.relu,
    relax.op.tanh,
    relax.op.sigmoid,
    relax.op.exp,
    relax.op.erf,
    relax.op.negative,
    relax.op.abs,
)
_BINARY = (relax.op.add, relax.op.add, relax.op.multiply, relax.op.multiply, relax.op.subtract, relax.op.divide)


def attention(s: Sketch) -> tuple[Any, ...]:
    """One attention layer with its projections."""
    return (_attention(s, _sequence(s)),)


def feed_forward(s: Sketch) -> tuple[Any, ...]:
    """Two matrix products with a non-linearity between, their residual connection, and a norm."""
    return (_feed_forward(s, _sequence(s)),)


def encoder(s: Sketch) -> tuple[Any, ...]:
    """One to four layers of a transformer."""
    x = _sequence(s, most_width=512)
    for _ in range(s.rng.choice((1, 1, 2, 3, 4))):
        x = _feed_forward(s, _attention(s, x))
    return (x,)


def recurrent(s: Sketch) -> tuple[Any, ...]:
    """One to four steps of a recurrent cell."""
    width, batch = s.size(64, 1024), s.rng.choice((1, 1, 1, 1, 2, 4))
    state, memory = s.input((batch, width)), s.input((batch, width))
    step = s.rng.choice((_tree, _tree, _tree, _lstm))
    for _ in range(s.rng.choice((1, 1, 2, 3, 4))):
        state, memory = step(s, s.input((batch, width)), state, memory)
    return (state,)


def elementwise(s: Sketch) -> tuple[Any, ...]:
    """Chains of elementwise operators on tensors of all sizes; softmax, norms, and moves of axes among them."""
    shape = _any_shape(s)
    x = s.input(shape)
    for _ in range(s.rng.choice((1, 2, 2, 3, 4, 6))):
        what = s.rng.random()
        if what < 0.45:
            x = s.emit(s.rng.choice(_UNARY)(x))
        elif what < 0.75:
            x = s.emit(s.rng.choice(_BINARY)(x, _operand(s, shape_of(x))))
        elif what < 0.8:
            x = s.emit(relax.op.nn.softmax(x, -1))
        elif what < 0.85 and len(shape) == 3:
            x = s.norm(x)
        elif what < 0.93 and len(shape) > 2:
            axes = list(range(len(shape)))
            axes[1:] = s.rng.sample(axes[1:], len(axes) - 1)
            x = s.emit(relax.op.permute_dims(x, axes))
        elif len(shape) == 3:
            x = s.emit(relax.op.mean(x, [-1], True))
            return (s.emit(relax.op.subtract(s.input(shape), x)) if shape_of(x)[:2] == shape[:2] else x,)
        else:
            x = s.activation(x, ("clip", "silu"))
    return (x,)


def embedding(s: Sketch) -> tuple[Any, ...]:
    """Rows of a table, with positions, and a norm."""
    length, width = s.rng.choice((16, 32, 64, 128, 256)), s.size(128, 1024)
    ids = s.input((1, length), "int64")
    x = s.emit(relax.op.take(s.weight(s.size(500, 8000), width), ids, axis=0))
    x = s.add(x, s.weight(1, length, width))
    return (s.norm(x) if s.rng.random() < 0.7 else x,)


def _sequence(s: Sketch, most_width: int = 1024) -> Any:
    heads = s.rng.choice(_HEADS)
    width = heads * s.rng.choice((32, 32, 48, 64, 64, 80))
    while width > most_width:
        width //= 2
    return s.input((1, s.rng.choice((8, 16, 24, 32, 48, 64, 96, 128, 192, 256)), width))


def _attention(s: Sketch, x: Any) -> Any:
    _, length, width = shape_of(x)
    heads = s.rng.choice([h for h in _HEADS if width % h == 0 and width // h >= 16] or [1])
    before = s.rng.random() < 0.5
    source = s.norm(x) if before else x
    if s.rng.random() < 0.5:
        projected = [s.linear(source, width) for _ in range(3)]
    else:
        both = s.emit(relax.op.split(s.linear(source, 3 * width), 3, -1))
        projected = [s.emit(relax.TupleGetItem(both, i)) for i in range(3)]
    split = [s.emit(relax.op.reshape(p, (1, length, heads, width // heads))) for p in projected]
    q, v = (s.emit(relax.op.permute_dims(split[i], [0, 2, 1, 3])) for i in (0, 2))
    k = s.emit(relax.op.permute_dims(split[1], [0, 2, 3, 1]))
    scores = s.emit(relax.op.matmul(q, k))
    factor = s.scalar(1.0 / math.sqrt(width // heads))
    scores = s.emit(relax.op.multiply(scores, factor))
    if s.rng.random() < 0.5:
        mask = np.where(np.tri(length, dtype=bool), 0.0, -1e4).astype(np.float32)
        scores = s.add(scores, relax.const(mask.reshape(1, 1, length, length)))
    mixed = s.emit(relax.op.matmul(s.emit(relax.op.nn.softmax(scores, -1)), v))
    joined = s.emit(relax.op.reshape(s.emit(relax.op.permute_dims(mixed, [0, 2, 1, 3])), (1, length, width)))
    result = s.add(s.linear(joined, width), x)
    return result if before else s.norm(result)


def _feed_forward(s: Sketch, x: Any) -> Any:
    _, length, width = shape_of(x)
    before, flat = s.rng.random() < 0.5, s.rng.random() < 0.3
    y = s.norm(x) if before else x
    if flat:
        y = s.emit(relax.op.reshape(y, (length, width)))
    y = _gelu(s, s.linear(y, width * s.rng.choice((2, 4, 4))))
    y = s.linear(y, width)
    if flat:
        y = s.emit(relax.op.reshape(y, (1, length, width)))
    y = s.add(y, x)
    return y if before else s.norm(y)


def _gelu(s: Sketch, x: Any) -> Any:
    """GELU by the error function, by tanh, or another non-linearity."""
    how = s.rng.choice(("erf", "erf", "tanh", "tanh", "relu", "silu"))
    if how == "erf":
        inner = s.emit(relax.op.erf(s.emit(relax.op.multiply(x, s.scalar(math.sqrt(0.5))))))
        half = s.emit(relax.op.multiply(x, s.emit(relax.op.add(inner, s.scalar(1.0)))))
        return s.emit(relax.op.multiply(half, s.scalar(0.5)))
    if how == "tanh":
        cube = s.emit(relax.op.power(x, s.scalar(3.0)))
        inner = s.add(x, s.emit(relax.op.multiply(cube, s.scalar(0.044715))))
        inner = s.emit(relax.op.tanh(s.emit(relax.op.multiply(inner, s.scalar(math.sqrt(2 / math.pi))))))
        half = s.emit(relax.op.multiply(x, s.scalar(0.5)))
        return s.emit(relax.op.multiply(half, s.emit(relax.op.add(inner, s.scalar(1.0)))))
    return s.activation(x, (how,))


def _lstm(s: Sketch, x: Any, state: Any, memory: Any) -> tuple[Any, Any]:
    width = shape_of(state)[-1]
    gates = s.bias(s.add(s.linear(x, 4 * width, False), s.linear(state, 4 * width, False)), -1)
    four = s.emit(relax.op.split(gates, 4, -1))
    i, f, g, o = (s.emit(relax.TupleGetItem(four, n)) for n in range(4))
    kept = s.emit(relax.op.multiply(s.emit(relax.op.sigmoid(f)), memory))
    new = s.emit(relax.op.multiply(s.emit(relax.op.sigmoid(i)), s.emit(relax.op.tanh(g))))
    memory = s.add(kept, new)
    return s.emit(relax.op.multiply(s.emit(relax.op.sigmoid(o)), s.emit(relax.op.tanh(memory)))), memory


def _tree(s: Sketch, x: Any, state: Any, memory: Any) -> tuple[Any, Any]:
    """Linear maps of both inputs, combined by a random tree of sums and products of gates."""
    width = shape_of(state)[-1]
    gates = ("sigmoid", "tanh", "relu")
    parts = []
    for _ in range(s.rng.choice((2, 3, 4, 6))):
        leaf = s.add(s.linear(x, width, False), s.linear(state, width, s.rng.random() < 0.3))
        parts.append(s.activation(leaf, gates))
    parts.append(memory)
    while len(parts) > 1:
        a, b = (parts.pop(s.rng.randrange(len(parts))) for _ in range(2))
        joined = s.emit(s.rng.choice((relax.op.add, relax.op.multiply))(a, b))
        parts.append(s.activation(joined, (*gates, "none")))
    return s.activation(parts[0], ("tanh",)), memory


def _any_shape(s: Sketch) -> tuple[int, ...]:
    rank = s.rng.choice((2, 3, 3, 4, 4, 4, 5))
    elements = 2.0 ** s.rng.uniform(8, 21.5)
    if rank == 2:
        rows = s.rng.choice((1, 1, 16, 64, 128))
        return rows, max(4, round(elements / rows))
    if rank == 3:
        length = s.rng.choice((16, 64, 128, 128))
        return 1, length, max(4, round(elements / length))
    extent = s.rng.choice((7, 14, 28, 56))
    while extent**2 > elements / 8:
        extent //= 2
    extent = max(2, extent)
    if rank == 4:
        return 1, max(2, round(elements / extent**2)), extent, extent
    frames = s.rng.choice((2, 4, 8))
    return 1, max(2, round(elements / (frames * extent**2))), frames, extent, extent


def _operand(s: Sketch, shape: tuple[int, ...]) -> Any:
    """Another tensor of the shape, one number for each channel, or one number."""
    what = s.rng.choice(("input", "channel", "channel", "scalar"))
    if what == "input":
        return s.input(shape)
    if what == "scalar":
        return s.scalar(0.7)
    axis = 1 if len(shape) > 3 else len(shape) - 1
    return s.weight(*(extent if i == axis else 1 for i, extent in enumerate(shape)), fan_in=2)
