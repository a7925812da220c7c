"""A workload's structure as plain data: what records are keyed by, and what features are made of.

The description holds operators, attributes, shapes, dtypes and edges, and the values of scalar constants; not the
values of weights, on which latency does not depend. Equal sub-graphs of one network, or of two, have equal
descriptions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.annotations.opaque import is_opaque, opaque_attributes, opaque_name, tensors_of


def describe_module(module: Any, function: str = "main") -> dict[str, Any]:
    """Describe a Relax function whose bindings are calls, tuples and projections.

    Returns
    -------
    A JSON-compatible dict: `inputs` (list of types), `nodes` (each with `op`, `attrs`, `args`, `out`), `outputs`
    (list of references). A type is `[shape, dtype]`; a reference `["in", i]`, `["node", i]`, `["const", type]` or
    `["scalar", value, dtype]`.
    """
    func = module[function]
    references: dict[Any, list[Any]] = {var: ["in", i] for i, var in enumerate(func.params)}
    nodes: list[dict[str, Any]] = []
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Var):
                references[binding.var] = references[value]
                continue
            nodes.append(describe_value(module, value, binding.var.ty, references.__getitem__))
            references[binding.var] = ["node", len(nodes) - 1]
    result = func.body.body
    fields = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    return {
        "inputs": [describe_type(p.ty) for p in func.params],
        "nodes": nodes,
        "outputs": [_reference(f, references.__getitem__) for f in fields],
    }


def describe_value(module: Any, value: Any, ty: Any, refer: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """Describe one binding; `refer` gives the reference of a variable."""
    return {**_node(module, value, refer), "out": describe_type(ty)}


def structure_hash(description: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a description; the same in every process and on every machine."""
    return hashlib.sha256(json.dumps(description, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def attributes(attrs: Any) -> dict[str, Any]:
    """The fields of an operator's attributes as JSON-compatible values."""
    if attrs is None:
        return {}
    if isinstance(attrs, tvm.ir.DictAttrs):
        return {str(k): _value(attrs[k]) for k in attrs.keys()}  # noqa: SIM118
    fields: dict[str, Any] = {}
    info = type(attrs).__tvm_ffi_type_info__
    while info is not None:
        fields |= {f.name: _value(getattr(attrs, f.name)) for f in info.fields or ()}
        info = info.parent_type_info
    return dict(sorted(fields.items()))


def _node(module: Any, value: Any, refer: Callable[[Any], list[Any]]) -> dict[str, Any]:
    if isinstance(value, relax.Tuple):
        return {"op": "tuple", "attrs": {}, "args": [_reference(f, refer) for f in value.fields]}
    if isinstance(value, relax.TupleGetItem):
        source = _reference(value.tuple_value, refer)
        return {"op": "tuple_get", "attrs": {"index": int(value.index)}, "args": [source]}
    if not isinstance(value, relax.Call):
        raise TypeError(f"a dataflow block binds calls, tuples and projections, not {type(value).__name__}")
    if is_opaque(value):
        operands = [_reference(a, refer) for a in tensors_of(value)]
        return {"op": opaque_name(value), "attrs": opaque_attributes(value), "args": operands}
    op = value.op.name if isinstance(value.op, tvm.ir.Op) else str(value.op)
    if op == "relax.call_tir":
        callee = value.args[0]
        body = hashlib.sha256(module[callee].script().encode()).hexdigest()
        args = [_reference(a, refer) for a in value.args[1:]]
        return {"op": f"call_tir:{callee.name_hint}", "attrs": {"tir": body}, "args": args}
    return {"op": op, "attrs": attributes(value.attrs), "args": [_reference(a, refer) for a in value.args]}


def _reference(expr: Any, refer: Callable[[Any], list[Any]]) -> list[Any]:
    if isinstance(expr, relax.Var):
        return refer(expr)
    if isinstance(expr, tvm.ir.GenericConst):
        if expr.value.shape:
            return ["const", describe_type(expr.ty)]
        return ["scalar", _number(expr.value.numpy()), str(expr.value.dtype)]
    if isinstance(expr, relax.Tuple):
        return ["tuple", [_reference(f, refer) for f in expr.fields]]
    return ["value", _value(expr)]


def describe_type(ty: Any) -> list[Any]:
    """`[shape, dtype]` of a tensor type; the list of its fields' for a tuple type."""
    if isinstance(ty, relax.TupleType) or hasattr(ty, "fields"):
        return [describe_type(f) for f in ty.fields]
    shape = getattr(ty, "shape", None)
    dims = [_value(d) for d in shape.values] if shape is not None and hasattr(shape, "values") else None
    return [dims, str(getattr(ty, "dtype", ty))]


def _number(array: np.ndarray) -> float | int | bool | str:
    number = array.item()
    return number if not isinstance(number, float) or np.isfinite(number) else str(number)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, (list, tuple, tvm.ir.Array)):
        return [_value(v) for v in value]
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return _value(value.value)
    if isinstance(value, relax.ShapeExpr):
        return [_value(v) for v in value.values]
    return str(value)
