"""Wider numbers: a network as the same network in a wider floating-point type, its weights exactly those that it has.

Two things need it. What a kernel should give is computed in wider numbers and rounded once, because a processor's own
arithmetic in half precision is no better than that of the kernels that it would judge; in float64, when a reference in
float32 is uncertain. And an exporter that knows float32 exports float16 by way of it: the operators are the same ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax

from collage.frontend.passes.rewriting import bindings, leaves, rebuilt
from collage.frontend.values import constant, value_of

NARROW, BFLOAT16, WIDE = "float16", "bfloat16", "float32"
#: Half precision.
HALF = (NARROW, BFLOAT16)
#: Which dtypes become which.
Widening = Mapping[str, str]
TO_SINGLE: Widening = {NARROW: WIDE, BFLOAT16: WIDE}
TO_DOUBLE: Widening = {NARROW: "float64", BFLOAT16: "float64", WIDE: "float64"}


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


def widened(function: Any, widening: Widening = TO_SINGLE) -> Any:
    """The function with wider dtypes in its parameters, constants, results and attributes.

    Parameters
    ----------
    function
        Of tensors, in A-normal form and without control flow, that calls operators only.
    """
    parameters = [relax.Var(p.name, _wide_type(p.ty, widening)) for p in function.params]
    known: dict[Any, Any] = dict(zip(function.params, parameters, strict=True))
    builder = relax.BlockBuilder()
    body = function.body.body
    with builder.function("main", parameters):
        with builder.dataflow():
            for variable, value in bindings(function):
                emit = builder.emit_output if variable.same_as(body) else builder.emit
                known[variable] = emit(_wide(value, known, widening), name_hint=variable.name)
            result = known[body] if body in known else builder.emit_output(_wide(body, known, widening))
        builder.emit_func_output(result)
    rebuilt = builder.get()["main"]
    return rebuilt.with_attrs({**(rebuilt.attrs or {}), **(function.attrs or {})})


def widened_module(module: tvm.IRModule, widening: Widening = TO_SINGLE) -> tvm.IRModule:
    """The module with its `main` widened."""
    functions = dict(module.functions.items())
    functions[module.get_global_var("main")] = widened(module["main"], widening)
    return tvm.IRModule(functions)


def widened_value(value: Any, widening: Widening = TO_SINGLE) -> Any:
    """One bound value, its operands replaced by others of the wider types, with its own type deduced anew."""
    known = {v: relax.Var(v.name, _wide_type(v.ty, widening)) for v in leaves(value) if isinstance(v, relax.Var)}
    return relax.BlockBuilder().normalize(_wide(value, known, widening))


def _wide(value: Any, known: Mapping[Any, Any], widening: Widening) -> Any:
    def leaf(part: Any) -> Any:
        if isinstance(part, relax.Var):
            return known[part]
        array = value_of(part)
        dtype = None if array is None else widening.get(str(array.dtype))
        return part if dtype is None else constant(array, dtype)

    return rebuilt(value, leaf, functools.partial(_wide_attributes, widening=widening))


def _wide_attributes(attributes: Any, widening: Widening) -> Any:
    """Attributes with wider types in `dtype`, `out_dtype` and their like."""
    fields: dict[str, Any] = {}
    info = getattr(type(attributes), "__tvm_ffi_type_info__", None)
    if attributes is None or info is None:
        return attributes
    key = info.type_key
    while info is not None:
        fields |= {field.name: getattr(attributes, field.name) for field in info.fields or ()}
        info = info.parent_type_info
    wide = {
        name: type(value)(widening[str(value)])
        for name, value in fields.items()
        if value is not None and str(value) in widening
    }
    return tvm.ir.make_node(key, **{**fields, **wide}) if wide else attributes


def _wide_type(ty: Any, widening: Widening) -> Any:
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([_wide_type(field, widening) for field in ty.fields])
    narrow = [dtype for dtype in _dtypes(ty) if dtype in widening]
    return relax.TensorType(ty.shape, widening[narrow[0]]) if narrow else ty


def _dtypes(ty: Any) -> Iterator[str]:
    if isinstance(ty, relax.TupleType):
        for field in ty.fields:
            yield from _dtypes(field)
    elif isinstance(ty, relax.TensorType):
        yield str(ty.dtype)
