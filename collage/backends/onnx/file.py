"""The user's ONNX file, with the shapes that it is compiled for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tvm import relax

from collage.errors import CodegenError
from collage.frontend.shapes import declared_onnx_inputs

#: Protocol buffers hold no more.
_LARGEST = (1 << 31) - 1


def file_model(path: Path, function: Any) -> onnx.ModelProto:
    """The model of a file; dimensions that it leaves open are those of a function's parameters and results.

    Parameters
    ----------
    function
        The canonical network as a Relax function: its inputs and outputs are the file's, in order.

    Raises
    ------
    CodegenError
        The file cannot be read, is too large for one message, or has other inputs or outputs.
    """
    try:
        model = onnx.load(path)
    except (OSError, DecodeError, ValueError) as error:
        raise CodegenError(f"{path} cannot be read: {error}") from error
    if model.ByteSize() > _LARGEST:
        raise CodegenError(f"{path}: with its weights it is too large for one message")
    values = {value.name: value for value in model.graph.input}
    inputs = [values[declared.name] for declared in declared_onnx_inputs(model.graph)]
    results = list(function.ret_ty.fields) if isinstance(function.ret_ty, relax.TupleType) else [function.ret_ty]
    if len(inputs) != len(function.params) or len(model.graph.output) != len(results):
        raise CodegenError(f"{path} has other inputs or outputs than the network as it is loaded")
    types = [*(parameter.ty for parameter in function.params), *results]
    stated = [_state(value, ty) for value, ty in zip([*inputs, *model.graph.output], types, strict=True)]
    if any(stated):
        del model.graph.value_info[:]  # what is said of open shapes may contradict those that are fixed now
    return model


def _state(value: onnx.ValueInfoProto, ty: Any) -> bool:
    """Give a value the shape of a type; whether it had another or none."""
    if not isinstance(ty.shape, relax.ShapeExpr):
        return False
    extents = [int(extent) for extent in ty.shape.values]
    shape = value.type.tensor_type.shape
    known = value.type.tensor_type.HasField("shape")
    if known and [dim.dim_value if dim.HasField("dim_value") else None for dim in shape.dim] == extents:
        return False
    shape.ClearField("dim")
    shape.SetInParent()
    for extent in extents:
        shape.dim.add().dim_value = extent
    return True
