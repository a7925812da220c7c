"""Converters of elementwise operators: arithmetic, comparison, logic, selection, casts."""

from __future__ import annotations

import numpy as np

from collage.backends.onnx.export.conversion import (
    BOOL,
    FLOAT,
    INTEGER,
    NUMERIC,
    Conversion,
    Converter,
    table,
)
from collage.backends.onnx.export.graph import Value


def unary(op: str, dtypes: tuple[str, ...] = FLOAT) -> Converter:
    """One operand, one node of the same meaning."""

    def convert(c: Conversion) -> Value:
        c.require_dtype(dtypes)
        return c.emit(op, c.value(0))

    return convert


def binary(op: str, dtypes: tuple[str, ...] = NUMERIC) -> Converter:
    """Two operands of one dtype that broadcast like NumPy's, one node of the same meaning."""

    def convert(c: Conversion) -> Value:
        left, right = operands(c, dtypes)
        return c.emit(op, left, right)

    return convert


def operands(c: Conversion, dtypes: tuple[str, ...]) -> tuple[Value, Value]:
    """Both operands of a binary operator; a literal takes the dtype of the tensor beside it."""
    tensor = 0 if c.type(0).rank or not c.type(1).rank else 1
    c.require_dtype(dtypes, tensor)
    dtype = c.type(tensor).dtype
    left, right = c.value(0, dtype), c.value(1, dtype)
    for index in (0, 1):
        literal = not hasattr(c.call.args[index].ty, "shape")
        c.require(literal or c.type(index).dtype == dtype, "the operands have different dtypes")
    return left, right


def _remainder(floor: bool) -> Converter:
    def convert(c: Conversion) -> Value:
        left, right = operands(c, NUMERIC)
        if not floor:
            return c.emit("Mod", left, right, fmod=1)
        if c.result.dtype in INTEGER:
            return c.emit("Mod", left, right, fmod=0)
        whole = c.emit("Floor", c.emit("Div", left, right))
        return c.emit("Sub", left, c.emit("Mul", whole, right))

    return convert


def _floor_divide(c: Conversion) -> Value:
    left, right = operands(c, NUMERIC)
    quotient = c.emit("Div", left, right)
    if c.result.dtype not in INTEGER:
        return c.emit("Floor", quotient)
    # Integer division truncates: one less where a remainder is left and the signs differ.
    zero = c.scalar(0, c.result.dtype)
    rest = c.emit("Mod", left, right, fmod=1)
    apart = c.emit("Xor", c.emit("Less", rest, zero), c.emit("Less", right, zero))
    below = c.emit("And", c.emit("Not", c.emit("Equal", rest, zero)), apart)
    return c.emit("Sub", quotient, c.cast(below, "bool", c.result.dtype))


def _not_equal(c: Conversion) -> Value:
    left, right = operands(c, (*NUMERIC, *BOOL))
    return c.emit("Not", c.emit("Equal", left, right))


def _square(c: Conversion) -> Value:
    c.require_dtype(NUMERIC)
    return c.emit("Mul", c.value(0), c.value(0))


def _rsqrt(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    return c.emit("Reciprocal", c.emit("Sqrt", c.value(0)))


def _trunc(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    return c.emit("Mul", c.emit("Sign", c.value(0)), c.emit("Floor", c.emit("Abs", c.value(0))))


def _isfinite(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    return c.emit("Not", c.emit("Or", c.emit("IsNaN", c.value(0)), c.emit("IsInf", c.value(0))))


def _clip(c: Conversion) -> Value:
    c.require_dtype(NUMERIC)
    dtype = c.type(0).dtype
    bounds = [float(c.number(1)), float(c.number(2))]
    if dtype in INTEGER:
        limits = np.iinfo(dtype)
        # Bounds of an integer clip may be given as infinities or lie beyond the dtype: then they bound nothing.
        bounds = [min(max(bound, limits.min), limits.max) for bound in bounds]
        c.require(all(bound == int(bound) for bound in bounds), "an integer clip with fractional bounds")
        exact = [
            int(c.number(1 + i)) if abs(b) < 2**53 else (limits.min, limits.max)[b > 0] for i, b in enumerate(bounds)
        ]
        return c.emit("Clip", c.value(0), c.scalar(exact[0], dtype), c.scalar(exact[1], dtype))
    low, high = (c.scalar(bound, dtype) if np.isfinite(bound) else "" for bound in bounds)
    c.require(
        not (bounds[0] == np.inf or bounds[1] == -np.inf or np.isnan(bounds).any()), "a clip with impossible bounds"
    )
    return c.emit("Clip", c.value(0), low, high) if high else c.emit("Clip", c.value(0), low)


def _astype(c: Conversion) -> Value:
    source, target = c.type(0).dtype, c.result.dtype
    # A float outside the range of an integer dtype has no defined value, and the narrow ones are easily left.
    c.require(not (source == "float32" and target in ("uint8", "int8")), f"a cast from {source} to {target}")
    return c.cast(c.value(0), source, target)


def _where(c: Conversion) -> Value:
    c.require_dtype(BOOL, 0)
    c.require_dtype(NUMERIC, 1, 2)
    return c.emit("Where", c.value(0), c.value(1), c.value(2))


_SAME_NAME = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "log", "round"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_UNARY = {
    "relax.abs": ("Abs", NUMERIC),
    "relax.negative": ("Neg", NUMERIC),
    "relax.logical_not": ("Not", BOOL),
    **{f"relax.{name}": (name.capitalize(), FLOAT) for name in _SAME_NAME},
    "relax.isnan": ("IsNaN", FLOAT),
    "relax.isinf": ("IsInf", FLOAT),
}

_BINARY = {
    "relax.add": ("Add", NUMERIC),
    "relax.subtract": ("Sub", NUMERIC),
    "relax.multiply": ("Mul", NUMERIC),
    "relax.divide": ("Div", NUMERIC),
    "relax.power": ("Pow", FLOAT),
    "relax.maximum": ("Max", NUMERIC),
    "relax.minimum": ("Min", NUMERIC),
    "relax.equal": ("Equal", (*NUMERIC, *BOOL)),
    "relax.less": ("Less", NUMERIC),
    "relax.less_equal": ("LessOrEqual", NUMERIC),
    "relax.greater": ("Greater", NUMERIC),
    "relax.greater_equal": ("GreaterOrEqual", NUMERIC),
    "relax.logical_and": ("And", BOOL),
    "relax.logical_or": ("Or", BOOL),
    "relax.logical_xor": ("Xor", BOOL),
    "relax.bitwise_and": ("BitwiseAnd", INTEGER),
    "relax.bitwise_or": ("BitwiseOr", INTEGER),
    "relax.bitwise_xor": ("BitwiseXor", INTEGER),
}

CONVERTERS = table(
    *((name, unary(op, dtypes)) for name, (op, dtypes) in _UNARY.items()),
    *((name, binary(op, dtypes)) for name, (op, dtypes) in _BINARY.items()),
    ("relax.mod", _remainder(floor=False)),
    ("relax.floor_mod", _remainder(floor=True)),
    ("relax.floor_divide", _floor_divide),
    ("relax.not_equal", _not_equal),
    ("relax.square", _square),
    ("relax.rsqrt", _rsqrt),
    ("relax.trunc", _trunc),
    ("relax.isfinite", _isfinite),
    ("relax.clip", _clip),
    ("relax.astype", _astype),
    ("relax.where", _where),
)
