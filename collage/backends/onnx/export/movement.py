"""Converters of operators that move, select or combine elements without arithmetic on them."""

from __future__ import annotations

import numpy as np

from collage.backends.onnx.export.conversion import (
    FLOAT,
    INTEGER,
    NUMERIC,
    Conversion,
    Converter,
    axes_of,
    axis_of,
    table,
)
from collage.backends.onnx.export.graph import Value, Values

_INT64 = np.iinfo(np.int64)


def _to_result_shape(c: Conversion) -> Value:
    """Reshape, flatten, squeeze, expand_dims: with static shapes all say the same."""
    return c.reshape(c.value(0), c.result.shape)


def _permute_dims(c: Conversion) -> Value:
    rank = c.type(0).rank
    axes = axes_of(c.attrs.axes, rank) if c.attrs.axes is not None else tuple(reversed(range(rank)))
    return c.emit("Transpose", c.value(0), perm=list(axes))


def _broadcast_to(c: Conversion) -> Value:
    return c.emit("Expand", c.value(0), c.graph.ints(c.result.shape))


def _repeat(c: Conversion) -> Value:
    data, repeats, shape = c.value(0), int(c.attrs.repeats), c.type(0).shape
    axis = 0 if c.attrs.axis is None else axis_of(c.attrs.axis, len(shape))
    if c.attrs.axis is None:
        shape = (c.type(0).size,)
    # Each element along the axis becomes a run of equal ones: a new axis after it, broadcast, then merged into it.
    split = c.reshape(data, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = c.emit("Expand", split, c.graph.ints((*shape[: axis + 1], repeats, *shape[axis + 1 :])))
    return c.reshape(wide, c.result.shape)


def _tile(c: Conversion) -> Value:
    shape, repeats = c.type(0).shape, [int(r) for r in c.attrs.repeats]
    rank = max(len(shape), len(repeats))
    repeats = [1] * (rank - len(repeats)) + repeats
    data = c.value(0) if rank == len(shape) else c.reshape(c.value(0), (*[1] * (rank - len(shape)), *shape))
    return c.emit("Tile", data, c.graph.ints(repeats))


def _slice(c: Conversion, starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> Value:
    ints = c.graph.ints
    return c.emit("Slice", c.value(0), ints(starts), ints(ends), ints(axes), ints(steps))


def _flip(c: Conversion) -> Value:
    return _slice(c, [-1], [_INT64.min], [axis_of(c.attrs.axis, c.type(0).rank)], [-1])


def _strided_slice(c: Conversion) -> Value:
    """Bounds are made absolute here, by TVM's rule: negative ones count from the end, then they are clamped."""
    shape = c.type(0).shape
    axes = axes_of(c.integers(1), len(shape))
    steps = c.integers(4) if c.arity > 4 else (1,) * len(axes)
    starts, ends = [], []
    for axis, begin, end, step in zip(axes, c.integers(2), c.integers(3), steps, strict=True):
        extent = shape[axis]
        c.require(not c.attrs.assume_inbound or min(begin, end) >= 0, "bounds assumed to be absolute are negative")
        low, high = (0, extent) if step > 0 else (-1, extent - 1)
        start, stop = (min(max(b + extent if b < 0 else b, low), high) for b in (begin, end))
        length = max(0, -(-(stop - start) // step))
        c.require(length == c.result.shape[axis], "the slice has another length than its type says")
        starts.append(start)
        ends.append(stop if stop >= 0 else _INT64.min)
    return _slice(c, starts, ends, list(axes), list(steps))


def _concat(c: Conversion) -> Value:
    values, types = c.values(0), c.types(0)
    if c.attrs.axis is None:
        values = tuple(c.reshape(v, (t.size,)) for v, t in zip(values, types, strict=True))
    return c.emit("Concat", *values, axis=0 if c.attrs.axis is None else axis_of(c.attrs.axis, types[0].rank))


def _stack(c: Conversion) -> Value:
    rank = c.result.rank
    axis = axis_of(0 if c.attrs.axis is None else c.attrs.axis, rank)
    values = [c.emit("Unsqueeze", value, c.graph.ints([axis])) for value in c.values(0)]
    return c.emit("Concat", *values, axis=axis)


def _split(c: Conversion) -> Values:
    axis = axis_of(c.attrs.axis, c.type(0).rank)
    sizes = c.graph.ints([part.shape[axis] for part in c.results])
    return c.graph.emit_many("Split", (c.value(0), sizes), len(c.results), axis=axis)


def _take(c: Conversion) -> Value:
    c.require_dtype(INTEGER, 1)
    shape = c.type(0).shape
    axis = 0 if c.attrs.axis is None else axis_of(c.attrs.axis, len(shape))
    return c.emit("Gather", c.value(0), _limited_indices(c, shape[axis]), axis=axis)


def _limited_indices(c: Conversion, extent: int) -> Value:
    """The indices of a `take`, brought into the tensor as its mode says; known ones at once."""
    mode, dtype, known = str(c.attrs.mode), c.type(1).dtype, c.known(1)
    # "fast": indices outside the tensor are the program's fault, in TVM as in the engines.
    c.require(mode in ("fast", "clip", "wrap"), f"the mode {mode!r}")
    if mode == "fast":
        return c.value(1)
    if known is not None:
        limited = np.clip(known, 0, extent - 1) if mode == "clip" else known % extent
        return c.graph.constant(np.asarray(limited, dtype=dtype))
    if mode == "clip":
        return c.emit("Clip", c.value(1), c.scalar(0, dtype), c.scalar(extent - 1, dtype))
    return c.emit("Mod", c.value(1), c.scalar(extent, dtype), fmod=0)


def _gather_elements(c: Conversion) -> Value:
    c.require_dtype(INTEGER, 1)
    axis = axis_of(c.attrs.axis, c.type(0).rank)
    _require_equal_beside(c, axis)
    return c.emit("GatherElements", c.value(0), c.value(1), axis=axis)


def _require_equal_beside(c: Conversion, axis: int) -> None:
    """Engines differ on indices that cover only a part of the other axes."""
    pairs = zip(c.type(0).shape, c.type(1).shape, strict=True)
    c.require(all(d == i or a == axis for a, (d, i) in enumerate(pairs)), "indices that cover a part of the tensor")


def _gather_nd(c: Conversion) -> Value:
    c.require_dtype(INTEGER, 1)
    indices = c.cast(c.value(1), c.type(1).dtype, "int64")
    return c.emit("GatherND", c.value(0), indices, batch_dims=int(c.attrs.batch_dims))


_REDUCTIONS = {"update": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _scatter(op: str) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT, 0, 2)
        c.require_dtype(INTEGER, 1)
        reduction = _REDUCTIONS.get(str(c.attrs.reduction))
        c.require(reduction is not None, f"the reduction {c.attrs.reduction}")
        if op == "ScatterElements":
            axis = axis_of(c.attrs.axis, c.type(0).rank)
            _require_equal_beside(c, axis)
            return c.emit(op, c.value(0), c.value(1), c.value(2), axis=axis, reduction=reduction)
        indices = c.cast(c.value(1), c.type(1).dtype, "int64")
        return c.emit(op, c.value(0), indices, c.value(2), reduction=reduction)

    return convert


def _triangle(upper: int) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype((*NUMERIC, "bool"))
        shape = c.type(0).shape
        c.require(len(shape) >= 2, "a triangle of a tensor of rank under 2")
        # A mask rather than Trilu: that has few dtypes in the engines, and zeroes by multiplication in one of them.
        ones = np.ones(shape[-2:], dtype=bool)
        mask = np.triu(ones, c.number(1)) if upper else np.tril(ones, c.number(1))
        if c.result.dtype == "bool":
            return c.emit("And", c.value(0), c.graph.constant(mask))
        return c.emit("Where", c.graph.constant(mask), c.value(0), c.scalar(0, c.result.dtype))

    return convert


def _one_hot(c: Conversion) -> Value:
    """By comparison: an index outside the depth gives a row of `off` in Relax, but wraps around in ONNX."""
    c.require_dtype(INTEGER)
    indices, depth = c.type(0), int(c.attrs.depth)
    axis = axis_of(c.attrs.axis, c.result.rank)
    steps = np.arange(depth, dtype=indices.dtype).reshape(depth, *[1] * (c.result.rank - axis - 1))
    hit = c.emit("Equal", c.emit("Unsqueeze", c.value(0), c.graph.ints([axis])), c.graph.constant(steps))
    on, off = (c.scalar(c.number(i), c.result.dtype) for i in (1, 2))
    return c.emit("Where", hit, on, off)


CONVERTERS = table(
    *((f"relax.{name}", _to_result_shape) for name in ("reshape", "flatten", "squeeze", "expand_dims")),
    ("relax.nn.batch_flatten", _to_result_shape),
    ("relax.permute_dims", _permute_dims),
    ("relax.broadcast_to", _broadcast_to),
    ("relax.repeat", _repeat),
    ("relax.tile", _tile),
    ("relax.flip", _flip),
    ("relax.strided_slice", _strided_slice),
    ("relax.concat", _concat),
    ("relax.stack", _stack),
    ("relax.split", _split),
    ("relax.take", _take),
    ("relax.gather_elements", _gather_elements),
    ("relax.gather_nd", _gather_nd),
    ("relax.scatter_elements", _scatter("ScatterElements")),
    ("relax.scatter_nd", _scatter("ScatterND")),
    ("relax.tril", _triangle(upper=0)),
    ("relax.triu", _triangle(upper=1)),
    ("relax.one_hot", _one_hot),
)
