"""The shapes of what a loop gives: ONNX's own inference says nothing of them.

A state keeps its shape when the loop's body, given states of the first shapes, returns states of the same shapes. What
the loop collects has one entry per iteration: their number is known when the count is a constant and nothing ends the
loop early.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from collage.frontend.onnx.inference import Extents, extents, inferred

Shapes = list[Extents | None]


def loop_shapes(function: FunctionProto, model: ModelProto, subject: str) -> Shapes | None:
    """The shapes of a function's results, one `Loop`; None where a state changes its shape.

    Parameters
    ----------
    model
        Of the function alone: its inputs with their types, and the constants that are known.
    subject
        What the loop is called, for the log.
    """
    loop = function.node[0]
    body = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    types |= {name: _type(array) for name, array in constants.items()}
    states = [types[name] for name in loop.input[2:]]
    found = _of_body(body, states, model, types, subject)
    first = [extents(state) for state in states]
    if found[: len(states)] != first or any(shape is None for shape in found):
        return None
    count = _count(loop, body, constants)
    shapes: Shapes = [*first, *([count, *(shape or ())] for shape in found[len(states) :])]
    names = list(loop.output)
    return [shapes[names.index(name)] for name in function.output]


def _of_body(
    body: GraphProto,
    states: list[onnx.TypeProto.Tensor],
    model: ModelProto,
    types: Mapping[str, onnx.TypeProto.Tensor],
    subject: str,
) -> Shapes:
    """The shapes of the body's results after the condition, given states of these types."""
    graph = GraphProto(name="body", node=body.node, initializer=[*body.initializer, *model.graph.initializer])
    graph.input.extend(
        [
            helper.make_tensor_value_info(body.input[0].name, TensorProto.INT64, []),
            helper.make_tensor_value_info(body.input[1].name, TensorProto.BOOL, []),
        ]
    )
    known = {tensor.name for tensor in graph.initializer}
    for name, kind in [*zip((v.name for v in body.input[2:]), states, strict=True), *types.items()]:
        if name not in known:
            graph.input.append(onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=kind)))
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in body.output)
    inside = ModelProto(ir_version=model.ir_version, graph=graph, opset_import=model.opset_import)
    typed = inferred(inside, f"the body of {subject}")
    return [extents(value.type.tensor_type) for value in typed.graph.output[1:]]


def _count(loop: NodeProto, body: GraphProto, constants: Mapping[str, np.ndarray]) -> int | None:
    """How often the body runs, where that is known."""
    limit = constants.get(loop.input[0]) if loop.input[0] else None
    begins = len(loop.input) < 2 or not loop.input[1] or bool(constants.get(loop.input[1], np.array(False)).all())
    makers = {name: node for node in body.node for name in node.output}
    condition = body.output[0].name
    while condition in makers and makers[condition].op_type == "Identity":
        condition = makers[condition].input[0]
    goes_on = condition == body.input[1].name
    if condition in makers and makers[condition].op_type == "Constant":
        goes_on = bool(numpy_helper.to_array(makers[condition].attribute[0].t).all())
    own = {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    if condition in own:
        goes_on = bool(own[condition].all())
    return int(limit.reshape(())) if limit is not None and begins and goes_on else None


def _type(array: np.ndarray) -> onnx.TypeProto.Tensor:
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(element, array.shape).tensor_type
