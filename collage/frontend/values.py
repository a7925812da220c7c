"""Relax values: shapes and dtypes of their types, arrays of constants, and a module's inputs and outputs as
`TensorSpec`s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.annotations.opaque import function_of, opaque_calls
from collage.errors import FrontendError
from collage.runtime.tensor_spec import TensorSpec

#: Attribute of `main` with the names of the network's outputs: Relax gives names to inputs only.
OUTPUT_NAMES = "collage.output_names"

#: What NumPy can view without a copy.
_PLAIN = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)


def input_specs(mod: tvm.IRModule) -> list[TensorSpec]:
    """The inputs of a canonical module, in call order."""
    return [_spec(parameter.name, parameter.ty) for parameter in mod["main"].params]


def output_specs(mod: tvm.IRModule) -> list[TensorSpec]:
    """The outputs of a canonical module, in order; extents that depend on data are -1."""
    function = mod["main"]
    result = function.ret_ty
    types = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    attributes = function.attrs or {}
    names = [str(name) for name in attributes[OUTPUT_NAMES]] if OUTPUT_NAMES in attributes else []
    if len(names) != len(types):
        names = [f"output{i}" for i in range(len(types))]
    return [_spec(name, ty, may_be_open=True) for name, ty in zip(names, types, strict=True)]


def dependent_notes(mod: tvm.IRModule) -> list[str]:
    """Which part of a canonical module one engine has to run whole, because shapes in it depend on data."""
    result = []
    for call in opaque_calls(mod["main"]):
        fields = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else [call.ty]
        if any(static_shape(field) is None for field in fields):
            nodes = function_of(call).node
            names = list(dict.fromkeys(node.op_type for node in nodes))
            listed = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
            result.append(
                f"{len(nodes)} operator{'s' if len(nodes) > 1 else ''} ({listed}) run as one part on one engine: "
                f"shapes depend on data from {names[0]} on"
            )
    return result


def static_shape(ty: Any) -> tuple[int, ...] | None:
    """The extents of a tensor type; None when they are not all known or it is no tensor type."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    extents = ty.shape.values
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent) for extent in extents)


def dtype_of(ty: Any) -> str:
    """The dtype of a tensor type, as NumPy spells it."""
    return str(ty.dtype)


def value_of(expression: Any) -> np.ndarray | None:
    """The value of a constant, a view where possible; None for any other expression."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return None
    tensor = expression.value
    return np.asarray(np.from_dlpack(tensor) if str(tensor.dtype) in _PLAIN else tensor.numpy())


def constant(value: Any, dtype: str | None = None) -> Any:
    """A constant of exactly this value and dtype: `relax.const` turns 64-bit arrays into 32-bit ones."""
    array = np.asarray(value, dtype=dtype, order="C")
    return relax.const(tvm.runtime.tensor(array), str(array.dtype))


def _spec(name: str, ty: Any, may_be_open: bool = False) -> TensorSpec:
    shape = static_shape(ty)
    if shape is None and may_be_open and isinstance(ty, relax.TensorType) and ty.ndim >= 0:
        shape = (-1,) * ty.ndim
    if shape is None:
        raise FrontendError(f"'{name}' is not a tensor of static shape: {ty}")
    return TensorSpec(name, shape, dtype_of(ty))
