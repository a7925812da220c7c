"""Opaque nodes (`collage.annotations.opaque`): what was ONNX is put back, in the operator sets of the exported model.

The exporter writes one opset. An operator that means the same in it is taken as it is; an older one is converted by
ONNX's own converter; for a newer one the whole model declares the newer opset, which changes no other operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

import onnx
import tvm
from onnx import FunctionProto, ModelProto, NodeProto
from onnx.defs import OpSchema, SchemaError

from collage.annotations.opaque import function_of, makes_narrow, model_of, sub_graphs, tensors_of
from collage.backends.onnx.export.conversion import (
    Conversion,
    Converter,
    Unsupported,
    any_type,
    open_types,
)
from collage.backends.onnx.export.graph import OPSET, Value, Values
from collage.errors import last_line

#: Constants of so many elements tell the converter shapes and axes.
_SMALL = 4096
#: How ONNX calls two dtypes.
_ONNX_TYPES = MappingProxyType({"float32": "float", "float64": "double"})


def _opaque(c: Conversion) -> Value | Values:
    function = function_of(c.call)
    operands = tensors_of(c.call)
    names: list[Value] = []
    for operand in operands:
        name = c.lookup(operand)
        if isinstance(name, tuple):
            raise Unsupported("an operand is a tuple")
        names.append(name)
    dtypes = {dtype for value in (*operands, c.call) for _, dtype in open_types(value.ty)}
    nodes, opset = _nodes_and_opset(function, operands, {_ONNX_TYPES.get(dtype, dtype) for dtype in dtypes})
    opsets = {entry.domain: int(entry.version) for entry in function.opset_import if entry.domain}
    results = c.graph.splice(
        nodes, dict(zip(function.input, names, strict=True)), function.output, opsets | {"": opset}
    )
    return results if len(results) > 1 else results[0]


def _nodes_and_opset(function: FunctionProto, operands: list[Any], types: set[str]) -> tuple[list[NodeProto], int]:
    """The nodes of a function as they have to be written, and the least opset of ONNX that they can be written in."""
    own = next((int(entry.version) for entry in function.opset_import if not entry.domain), OPSET)
    if own > OPSET and makes_narrow(function.node):
        return list(function.node), own  # types that the older operators do not take
    operators = {node.op_type for node in _standard(function.node)}
    changed = [name for name in operators if not _same(name, own, OPSET, types)]
    if not changed:
        return list(function.node), OPSET
    if own > OPSET:
        return list(function.node), own
    try:
        return list(onnx.version_converter.convert_version(_model(function, operands), OPSET).graph.node), OPSET
    except Exception as error:  # the converter raises whatever its C++ parts raise
        raise Unsupported(
            f"{', '.join(sorted(changed))} of opset {own} as opset {OPSET}: {last_line(error)}"
        ) from error


def _standard(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        if node.domain in ("", "ai.onnx"):
            yield node
        for graph in sub_graphs(node):
            yield from _standard(graph.node)


def _same(operator: str, one: int, other: int, types: set[str]) -> bool:
    """Whether an operator means the same in two opsets, and takes these types in the other."""
    if one == other:
        return True
    try:
        first, second = (onnx.defs.get_schema(operator, version, "") for version in (one, other))
    except SchemaError:
        return False
    if first.since_version == second.since_version:
        return True
    taken = {name for formal in (*second.inputs, *second.outputs) for name in formal.types}
    return one > other and _signature(first) == _signature(second) and {f"tensor({name})" for name in types} <= taken


def _signature(schema: OpSchema) -> Any:
    attributes = {name: (a.type, a.default_value.SerializeToString()) for name, a in schema.attributes.items()}
    formals = [[(f.name, f.option) for f in kind] for kind in (schema.inputs, schema.outputs)]
    return attributes, formals


def _model(function: FunctionProto, operands: list[Any]) -> ModelProto:
    """A model of the function, for the converter."""
    types = [(any_type(operand.ty).shape, str(operand.ty.dtype)) for operand in operands]
    constants = {i: operand.value.numpy() for i, operand in enumerate(operands) if _is_small(operand)}
    return onnx.shape_inference.infer_shapes(model_of(function, types, constants))


def _is_small(operand: Any) -> bool:
    return isinstance(operand, tvm.ir.GenericConst) and any_type(operand.ty).size <= _SMALL


CONVERTERS: dict[str, Converter] = {"relax.call_pure_packed": _opaque}
