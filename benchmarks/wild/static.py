"""An ONNX file whose inputs have extents: what a user of a fixed size gives the engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx


def dynamic_inputs(model: onnx.ModelProto) -> list[str]:
    """Inputs with a dimension that the file leaves open."""
    return [
        value.name
        for value in model.graph.input
        if any(not dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    ]


def with_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy with these inputs; what the file says of other shapes is left out, for it may contradict them."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape
            del dims.dim[:]
            for extent in shapes[value.name]:
                dims.dim.add().dim_value = extent
    del fixed.graph.value_info[:]
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return fixed
