"""Conversion: what a converter sees of one Relax call, and the registry of converters.

A converter is a function of a `Conversion`. It reads operands, attributes and types through it, writes ONNX nodes to
`Conversion.graph`, and returns the name of the result (a tuple of names where the operator returns a tuple). What it
cannot express exactly it refuses by raising `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.onnx.export.graph import GraphBuilder, Value, Values, tensor_dtype
from collage.errors import CodegenError


class Unsupported(CodegenError):
    """The exporter cannot express an operator, or this use of it; the message says why."""


Converter = Callable[["Conversion"], Value | Values]

#: dtypes of tensors that may cross an exported graph. float16 and bfloat16 are missing because the CPU engines compute
#: them in another precision than TVM, float64 because OpenVINO computes it in float32.
DTYPES = ("float32", "int32", "int64", "bool", "uint8", "int8")
#: Of opaque nodes, which one engine alone computes.
ALL_DTYPES = (*DTYPES, "float16", "float64", "int16", "uint16", "uint32", "uint64")
FLOAT = ("float32",)
NUMERIC = ("float32", "int32", "int64")
INTEGER = ("int32", "int64")
BOOL = ("bool",)


@dataclass(frozen=True)
class StaticType:
    """Static shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def any_type(ty: Any) -> StaticType:
    """The static type of a tensor whose readers look closer; an opaque node takes those without elements, too."""
    return static_type(ty, ALL_DTYPES, empty=True)


def static_type(ty: Any, dtypes: Iterable[str] = DTYPES, empty: bool = False) -> StaticType:
    """The static type of a Relax tensor type.

    Raises
    ------
    Unsupported
        Not a tensor, or its shape is not static, or of another dtype, or without elements where that is not
        expected.
    """
    if not isinstance(ty, relax.TensorType):
        raise Unsupported(f"{ty} is not a tensor")
    if not isinstance(ty.shape, relax.ShapeExpr):
        raise Unsupported(f"the shape of {ty} is not known")
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in ty.shape.values):
        raise Unsupported(f"the shape of {ty} is dynamic")
    shape = tuple(int(extent) for extent in ty.shape.values)
    if 0 in shape and not empty:
        raise Unsupported(f"{ty} has no elements")
    if str(ty.dtype) not in dtypes:
        raise Unsupported(f"dtype {ty.dtype}")
    return StaticType(shape, str(ty.dtype))


def static_types(ty: Any, dtypes: Iterable[str] = DTYPES) -> tuple[StaticType, ...]:
    """The static types of a tensor type (one) or of a flat tuple of tensors."""
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    return tuple(static_type(field, dtypes) for field in fields)


def open_types(ty: Any) -> list[tuple[list[int | None], str]]:
    """Shape and dtype of each tensor of a type, where extents of an opaque node's results may be None: they depend on
    data.
    """
    result: list[tuple[list[int | None], str]] = []
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        if isinstance(field, relax.TensorType) and not isinstance(field.shape, relax.ShapeExpr) and field.ndim >= 0:
            result.append(([None] * field.ndim, str(field.dtype)))
        else:
            static = any_type(field)
            result.append((list(static.shape), static.dtype))
    return result


@dataclass(frozen=True)
class Conversion:
    """One Relax call in the course of being written as ONNX.

    Attributes
    ----------
    call
        The Relax call.
    graph
        Where its nodes go.
    lookup
        Gives the value name(s) of an operand expression.
    """

    call: Any
    graph: GraphBuilder
    lookup: Callable[[Any], Value | Values]

    @property
    def attrs(self) -> Any:
        return self.call.attrs

    @property
    def arity(self) -> int:
        return len(self.call.args)

    def value(self, index: int, like: str = "") -> Value:
        """The name of operand `index`: a tensor, a constant, or a scalar expression (of dtype `like`) made into one."""
        operand = self.call.args[index]
        if tvm.ir.is_prim_expr(operand):
            return self.scalar(self.number(index), like or str(operand.ty))
        name = self.lookup(operand)
        if isinstance(name, tuple):
            raise Unsupported(f"operand {index} is a tuple")
        return name

    def values(self, index: int) -> Values:
        """The names of the members of the tuple operand `index`."""
        names = self.lookup(self.call.args[index])
        return names if isinstance(names, tuple) else (names,)

    def type(self, index: int) -> StaticType:
        """Shape and dtype of operand `index`; a scalar expression is a tensor of rank 0."""
        operand = self.call.args[index]
        return StaticType((), str(operand.ty)) if tvm.ir.is_prim_expr(operand) else static_type(operand.ty)

    def types(self, index: int) -> tuple[StaticType, ...]:
        """Shapes and dtypes of the members of the tuple operand `index`."""
        return static_types(self.call.args[index].ty)

    @property
    def result(self) -> StaticType:
        return static_type(self.call.ty)

    @property
    def results(self) -> tuple[StaticType, ...]:
        return static_types(self.call.ty)

    def number(self, index: int) -> Any:
        """The Python number that operand `index` is: a literal, or a constant tensor with one element."""
        operand = self.call.args[index]
        if isinstance(operand, tvm.tirx.IntImm | tvm.tirx.FloatImm):
            return operand.value
        if isinstance(operand, tvm.ir.GenericConst) and self.type(index).size == 1:
            return operand.value.numpy().reshape(()).item()
        raise Unsupported(f"operand {index} is not a literal number")

    def known(self, index: int) -> np.ndarray | None:
        """The value of operand `index` when it is a constant."""
        operand = self.call.args[index]
        return np.from_dlpack(operand.value) if isinstance(operand, tvm.ir.GenericConst) else None

    def integers(self, index: int) -> tuple[int, ...]:
        """The integers that operand `index` lists: a shape or a tuple of literals."""
        operand = self.call.args[index]
        items = operand.values if isinstance(operand, relax.ShapeExpr) else getattr(operand, "fields", None)
        if items is None or not all(isinstance(item, tvm.tirx.IntImm) for item in items):
            raise Unsupported(f"operand {index} is not a list of literal integers")
        return tuple(int(item) for item in items)

    def scalar(self, number: Any, dtype: str) -> Value:
        """An initializer of rank 0."""
        return self.graph.constant(np.asarray(number, dtype=dtype))

    def emit(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        return self.graph.emit(op, *inputs, **attributes)

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        return self.graph.emit("Reshape", value, self.graph.ints(shape))

    def cast(self, value: Value, source: str, target: str) -> Value:
        """`value` in another dtype; itself where it has that dtype already."""
        return value if source == target else self.graph.emit("Cast", value, to=tensor_dtype(target))

    def require(self, condition: bool, reason: str) -> None:
        """Refuse the call with `reason` unless `condition` holds."""
        if not condition:
            raise Unsupported(reason)

    def require_dtype(self, dtypes: Iterable[str], *operands: int) -> None:
        """Refuse the call unless the operands (operand 0 when none is named) have one of the dtypes."""
        for index in operands or (0,):
            dtype = self.type(index).dtype
            if dtype not in dtypes:
                raise Unsupported(f"operand {index} has dtype {dtype}; exported are {', '.join(dtypes)}")


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that a Relax attribute names, none negative; all of them for None."""
    if axis is None:
        return tuple(range(rank))
    listed = [axis] if isinstance(axis, int | tvm.tirx.IntImm) else list(axis)
    return tuple(int(a) + rank if int(a) < 0 else int(a) for a in listed)


def axis_of(axis: Any, rank: int) -> int:
    """One axis, not negative."""
    return axes_of(int(axis), rank)[0]


def table(*entries: tuple[str, Converter]) -> dict[str, Converter]:
    """A part of the converter table: Relax operator name -> converter, each operator once."""
    result = dict(entries)
    if len(result) != len(entries):
        raise ValueError("an operator is registered twice")
    return result
