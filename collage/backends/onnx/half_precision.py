"""Relax in float16 -> ONNX in float16, by way of the exporter for float32 (`collage.backends.onnx.export`).

ONNX knows planes only: what has its channels last is brought into planes first, with a transposition wherever the
partition begins and ends. The partition is then widened, exported, and every float32 tensor of the ONNX model narrowed
again: the operators are the same ones. That is exact as long as all floating-point tensors of a partition have one
type, so a conversion between float16 and float32 is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, numpy_helper
from tvm import relax

from collage.backends.onnx.export import export_onnx, unsupported_reason
from collage.errors import CodegenError
from collage.frontend.passes.layout import in_planes, in_planes_alone
from collage.frontend.passes.precision import BFLOAT16, NARROW, WIDE, dtypes_of, widened, widened_value

_MIXED = "float16 and another float together"


def export_any_float(function: Any, name: str) -> ModelProto:
    """The ONNX model of a Relax function whose floating-point tensors are all float32, or all float16.

    Raises
    ------
    CodegenError
        As of `export_onnx`, or both types occur.
    """
    function = in_planes(function)
    dtypes = dtypes_of(function)
    if NARROW not in dtypes:
        return export_onnx(function, name=name)
    if dtypes & {WIDE, BFLOAT16}:
        raise CodegenError(f"{name}: {_MIXED}")
    return narrowed(export_onnx(widened(function), name=name))


def refusal(node: Any) -> str | None:
    """Why a call cannot be exported in the floating-point type that it has; None when it can.

    Parameters
    ----------
    node
        A Relax expression in A-normal form, or a `DataflowNode`.
    """
    expr = getattr(node, "expr", node)
    if not isinstance(expr, relax.Call):
        return unsupported_reason(expr)
    expr = in_planes_alone(expr)
    dtypes = {dtype for operand in (*expr.args, expr) for dtype in tensor_dtypes(getattr(operand, "ty", None))}
    if NARROW not in dtypes:
        return unsupported_reason(expr)
    return f"{expr.op}: {_MIXED}" if dtypes & {WIDE, BFLOAT16} else unsupported_reason(widened_value(expr))


def tensor_dtypes(ty: Any) -> list[str]:
    """The dtypes of a tensor type (one), of a tuple's fields, or of anything else (none)."""
    fields = list(ty.fields) if isinstance(ty, relax.TupleType) else [ty]
    return [str(field.dtype) for field in fields if isinstance(field, relax.TensorType)]


def narrowed(model: ModelProto) -> ModelProto:
    """The model, changed in place: float16 wherever it had float32."""
    graph: GraphProto = model.graph
    for tensor in graph.initializer:
        _narrow(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _narrow(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return model


def _narrow(tensor: TensorProto) -> None:
    """Numbers beyond float16 become infinite, as the largest float32 does when it stands for infinity."""
    if tensor.data_type == TensorProto.FLOAT:
        with np.errstate(over="ignore"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
