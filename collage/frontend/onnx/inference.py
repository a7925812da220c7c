"""ONNX's shape inference, and the ranks that follow where it is silent.

Of an operator whose sizes, pads or axes come at run time, ONNX's inference often gives no shape at all, and nothing of
what reads it. The rank is known nevertheless: it is written into the model, and inference goes on behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import onnx
from onnx import ModelProto, NodeProto

from collage.errors import last_line

#: The extents of a shape, None where one is open.
Extents = list[int | None]

#: Operators whose results have the rank of their first operand, where inference says nothing of it.
_KEEP_RANK = frozenset(("CenterCropPad", "Pad", "Resize", "Slice", "Split", "Tile", "TopK", "Upsample"))


def inferred(model: ModelProto, subject: str) -> ModelProto:
    """The model with the types of its values, as far as they follow from those of its inputs; as it is, where ONNX's
    inference fails.

    Parameters
    ----------
    subject
        What the model is of, for the log.
    """
    while True:
        try:
            found = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception as error:  # onnx raises a dozen types; whoever asks has other sources
            logging.getLogger(__name__).debug("%s: ONNX infers no shapes: %s", subject, last_line(error))
            return model
        if not _ranks_added(found):
            return found
        model = found


def extents(tensor: onnx.TypeProto.Tensor) -> Extents | None:
    """The extents of a type; None where not even their number is known."""
    if not tensor.HasField("shape"):
        return None
    return [int(d.dim_value) if d.HasField("dim_value") else None for d in tensor.shape.dim]


def write_rank(tensor: onnx.TypeProto.Tensor, rank: int) -> None:
    """Give a type without a shape one whose extents are open."""
    tensor.shape.SetInParent()
    tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in range(rank))


def _ranks_added(model: ModelProto) -> bool:
    """Whether there were values without a shape whose rank follows; they have it now."""
    graph = model.graph
    types = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    shapes = {name: extents(tensor) for name, tensor in types.items()}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    added = False
    for node in graph.node:
        rank = _rank(node, [shapes.get(name) for name in node.input])
        for name in node.output if rank is not None else ():
            if name in types and types[name].elem_type and shapes[name] is None:
                write_rank(types[name], rank or 0)
                added = True
    return added


def _rank(node: NodeProto, given: Sequence[Extents | None]) -> int | None:
    """The rank of an operator's results where it follows from the shapes of its operands."""
    if node.domain not in ("", "ai.onnx") or not given or given[0] is None:
        return None
    if node.op_type in _KEEP_RANK:
        return len(given[0])
    axes = given[1] if len(given) > 1 else None
    if node.op_type == "Squeeze" and axes and axes[0] is not None:
        return len(given[0]) - axes[0]
    if node.op_type == "Unsqueeze" and axes is not None:
        count = axes[0] if axes else 1
        return None if count is None else len(given[0]) + count
    return 2 if node.op_type == "MelWeightMatrix" else None
