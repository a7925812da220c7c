"""Converters of operators that reduce, scan or order along axes."""

from __future__ import annotations

from collage.backends.onnx.export.conversion import (
    FLOAT,
    NUMERIC,
    Conversion,
    Converter,
    Unsupported,
    axes_of,
    axis_of,
    table,
)
from collage.backends.onnx.export.graph import Value, Values


def _axes(c: Conversion) -> tuple[int, ...]:
    axes = axes_of(c.attrs.axis, c.type(0).rank)
    if c.attrs.axis is not None and not axes:
        raise Unsupported("a reduction over no axes")
    return axes


def _reduce(op: str, dtypes: tuple[str, ...]) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(dtypes)
        if c.type(0).rank == 0:
            return c.value(0)
        return c.emit(op, c.value(0), c.graph.ints(_axes(c)), keepdims=int(bool(c.attrs.keepdims)))

    return convert


def _variance(c: Conversion) -> Value:
    """The mean squared deviation from the mean, in two passes, as TVM computes it."""
    c.require_dtype(FLOAT)
    c.require(c.type(0).rank > 0, "the variance of a scalar")
    axes = c.graph.ints(_axes(c))
    deviation = c.emit("Sub", c.value(0), c.emit("ReduceMean", c.value(0), axes, keepdims=1))
    squared = c.emit("Mul", deviation, deviation)
    return c.emit("ReduceMean", squared, axes, keepdims=int(bool(c.attrs.keepdims)))


def _std(c: Conversion) -> Value:
    return c.emit("Sqrt", _variance(c))


def _arg(op: str) -> Converter:
    """The first index of the extremum; over all axes, in the flattened tensor."""

    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT)
        data = c.type(0)
        c.require(data.rank > 0, "an index in a scalar")
        if c.attrs.axis is None:
            found = c.emit(op, c.reshape(c.value(0), (data.size,)), axis=0, keepdims=0)
            found = c.reshape(found, c.result.shape)
        else:
            axis = axis_of(c.attrs.axis, data.rank)
            found = c.emit(op, c.value(0), axis=axis, keepdims=int(bool(c.attrs.keepdims)))
        return c.cast(found, "int64", c.result.dtype)

    return convert


def _cumsum(c: Conversion) -> Value:
    c.require_dtype(NUMERIC)
    c.require(c.result.dtype == c.type(0).dtype, f"an accumulation in {c.result.dtype}")
    value, axis = c.value(0), c.attrs.axis
    if axis is None:
        value = c.reshape(value, (c.type(0).size,))
    position = c.scalar(0 if axis is None else axis_of(axis, c.type(0).rank), "int64")
    return c.emit("CumSum", value, position, exclusive=int(bool(c.attrs.exclusive)))


def _topk(c: Conversion) -> Value | Values:
    c.require_dtype(FLOAT)
    shape = c.type(0).shape
    axis, k = axis_of(c.attrs.axis, len(shape)), int(c.attrs.k)
    values, indices = _ordered(c, axis, k if k > 0 else shape[axis], bool(c.attrs.largest))
    indices = c.cast(indices, "int64", str(c.attrs.dtype))
    wanted = str(c.attrs.ret_type)
    results: dict[str, Value | Values] = {"both": (values, indices), "values": values, "indices": indices}
    return results[wanted]


def _sort(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    axis = axis_of(c.attrs.axis, c.type(0).rank)
    return _ordered(c, axis, c.type(0).shape[axis], bool(c.attrs.descending))[0]


def _argsort(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    axis = axis_of(c.attrs.axis, c.type(0).rank)
    indices = _ordered(c, axis, c.type(0).shape[axis], bool(c.attrs.descending))[1]
    return c.cast(indices, "int64", c.result.dtype)


def _ordered(c: Conversion, axis: int, count: int, largest: bool) -> Values:
    return c.graph.emit_many("TopK", (c.value(0), c.graph.ints([count])), 2, axis=axis, largest=int(largest), sorted=1)


CONVERTERS = table(
    ("relax.sum", _reduce("ReduceSum", NUMERIC)),
    ("relax.prod", _reduce("ReduceProd", FLOAT)),
    ("relax.max", _reduce("ReduceMax", NUMERIC)),
    ("relax.min", _reduce("ReduceMin", NUMERIC)),
    ("relax.mean", _reduce("ReduceMean", FLOAT)),
    ("relax.variance", _variance),
    ("relax.std", _std),
    ("relax.argmax", _arg("ArgMax")),
    ("relax.argmin", _arg("ArgMin")),
    ("relax.cumsum", _cumsum),
    ("relax.topk", _topk),
    ("relax.sort", _sort),
    ("relax.argsort", _argsort),
)
