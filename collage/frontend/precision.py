"""Wider numbers: a network in float16 as the same network in float32, its weights exactly those that it has.

Two things need it. What a float16 kernel should give is computed in float32 and rounded once, because a processor's
own float16 arithmetic is no better than that of the kernels that it would judge. And an exporter that knows float32
exports float16 by way of it: the operators are the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
from tvm import relax

from collage.frontend.constants import constant, value_of
from collage.frontend.rewriting import bindings, leaves, rebuilt

NARROW, WIDE = "float16", "float32"


def dtypes_of(function: Any) -> frozenset[str]:
    """The dtypes of all tensors of a Relax function: parameters, constants and results."""
    found = {dtype for parameter in function.params for dtype in _dtypes(parameter.ty)}
    for variable, value in bindings(function):
        found.update(_dtypes(variable.ty))
        found.update(dtype for argument in leaves(value) for dtype in _dtypes(getattr(argument, "ty", None)))
    return frozenset(found)


def calls_kernels(function: Any) -> bool:
    """Whether a function calls kernels that are given as loops, whose types are fixed in them."""
    return any(isinstance(argument, tvm.ir.GlobalVar) for _, v in bindings(function) for argument in leaves(v))


def widened(function: Any) -> Any:
    """The function with float32 wherever it has float16: parameters, constants, results and attributes.

    Parameters
    ----------
    function: of tensors, in A-normal form and without control flow, that calls operators only.
    """
    parameters = [relax.Var(p.name, _wide_type(p.ty)) for p in function.params]
    known: dict[Any, Any] = dict(zip(function.params, parameters, strict=True))
    builder = relax.BlockBuilder()
    body = function.body.body
    with builder.function("main", parameters):
        with builder.dataflow():
            for variable, value in bindings(function):
                emit = builder.emit_output if variable.same_as(body) else builder.emit
                known[variable] = emit(_wide(value, known), name_hint=variable.name)
            result = known[body] if body in known else builder.emit_output(_wide(body, known))
        builder.emit_func_output(result)
    rebuilt = builder.get()["main"]
    return rebuilt.with_attrs({**(rebuilt.attrs or {}), **(function.attrs or {})})


def widened_module(module: tvm.IRModule) -> tvm.IRModule:
    """The module with its `main` widened."""
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = widened(module["main"])
    return tvm.IRModule(functions)


def widened_value(value: Any) -> Any:
    """One bound value, its operands replaced by others of the wider types, with its own type deduced anew."""
    known = {v: relax.Var(v.name, _wide_type(v.ty)) for v in leaves(value) if isinstance(v, relax.Var)}
    return relax.BlockBuilder().normalize(_wide(value, known))


def _wide(value: Any, known: dict[Any, Any]) -> Any:
    def leaf(part: Any) -> Any:
        if isinstance(part, relax.Var):
            return known[part]
        array = value_of(part) if isinstance(part, tvm.ir.GenericConst) and NARROW in _dtypes(part.ty) else None
        return part if array is None else constant(array, WIDE)

    return rebuilt(value, leaf, _wide_attributes)


def _wide_attributes(attributes: Any) -> Any:
    """Attributes with `dtype`, `out_dtype` and their like in float32 where they say float16."""
    fields: dict[str, Any] = {}
    info = getattr(type(attributes), "__tvm_ffi_type_info__", None)
    if attributes is None or info is None:
        return attributes
    key = info.type_key
    while info is not None:
        fields |= {field.name: getattr(attributes, field.name) for field in info.fields or ()}
        info = info.parent_type_info
    narrow = [name for name, value in fields.items() if value is not None and str(value) == NARROW]
    if not narrow:
        return attributes
    wide = {name: type(fields[name])(WIDE) for name in narrow}
    return tvm.ir.make_node(key, **{**fields, **wide})


def _wide_type(ty: Any) -> Any:
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_wide_type(field) for field in ty.fields])
    return relax.TensorType(ty.shape, WIDE) if NARROW in _dtypes(ty) else ty


def _dtypes(ty: Any) -> Iterator[str]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _dtypes(field)
    elif isinstance(ty, relax.TensorType):
        yield str(ty.dtype)
