"""Relax values and types that the rewriting is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tvm import relax


def parameters(name: str, ty: Any, params: list[Any]) -> Any:
    """What stands for a value of this type, after its parameters were appended to `params`."""
    if isinstance(ty, relax.TupleType):
        return relax.Tuple([parameters(f"{name}_{i}", field, params) for i, field in enumerate(ty.fields)])
    params.append(relax.Var(name, ty))
    return params[-1]


def tensors(value: Any) -> Iterator[Any]:
    """The tensors in what stands for a value: `parameters`, backwards."""
    if isinstance(value, relax.Tuple):
        for field in value.fields:
            yield from tensors(field)
    else:
        yield value


def variable(old: Any, escapes: bool) -> Any:
    """A fresh variable like `old`: a dataflow variable, unless its value leaves the block."""
    return (relax.Var if escapes else relax.DataflowVar)(old.name, old.ty)


def substituted(expr: Any, table: Mapping[Any, Any]) -> Any:
    """One binding's value with other variables, and with constants that have become parameters."""
    if expr in table:
        return table[expr]
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substituted(f, table) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substituted(expr.tuple_value, table), expr.index)
    if isinstance(expr, relax.Call):
        args = [substituted(a, table) for a in expr.args]
        return relax.Call(expr.op, args, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    return expr


def function_type(function: Any) -> Any:
    """The type of a Relax function, for the global variable that names it."""
    return relax.FuncType([p.ty for p in function.params], function.ret_ty)
