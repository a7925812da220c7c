"""An ONNX node as converters see it, and the outputs of one whose inputs are all known.

Exported transformers spell shapes and attention masks as long chains of small operators that, with static shapes, start
at constants. The reference implementation that ONNX ships evaluates them while importing, so that nothing of them is
left. Only operators for which that is exact and cheap are evaluated here; Relax's constant folding does the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from collage.errors import FrontendError, UnsupportedOperatorError
from collage.frontend.onnx.file import describe_node
from collage.frontend.values import static_shape, value_of

_NAMES = """
Abs Add And ArgMax ArgMin Cast CastLike Ceil Clip Compress Concat ConstantOfShape CumSum Div Equal Expand EyeLike
Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Max Min
Mod Mul Neg NonZero Not OneHot Or Pad Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reciprocal Reshape Round
ScatterElements ScatterND Sign Size Slice Split Sqrt Squeeze Sub Tile Transpose Trilu Unsqueeze Where Xor
"""

#: Data movement, shape arithmetic, masks and comparisons.
EVALUATED = frozenset(_NAMES.split())


class Node:
    """An ONNX node with its inputs as Relax expressions (None: left out) and its attributes as Python values."""

    def __init__(self, proto: onnx.NodeProto, inputs: list[Any], opset: int, folder: Path) -> None:
        self.proto = proto
        self.inputs = inputs
        self.opset = opset
        self.folder = folder
        self.attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in proto.attribute}

    def input(self, index: int) -> Any:
        """An input, or None when it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def array(self, index: int) -> np.ndarray | None:
        """The value of an input that has to be constant, or None when it is left out."""
        value = self.input(index)
        if value is None:
            return None
        array = value_of(value)
        if array is None:
            raise UnsupportedOperatorError(
                f"{describe_node(self.proto)}: input {index} ('{self.proto.input[index]}') has to be constant"
            )
        return array

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


def shape_of(expression: Any) -> tuple[int, ...]:
    """The static shape of an expression.

    Raises
    ------
    FrontendError
        It has none.
    """
    shape = static_shape(expression.ty)
    if shape is None:
        raise FrontendError(f"a static shape is needed, but the type is {expression.ty}")
    return shape


def evaluate(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The outputs of a node of the standard domain, given all its inputs (None: an optional one left out)."""
    given = {name: array for name, array in zip(node.input, inputs, strict=False) if name and array is not None}
    arguments = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.helper.make_graph([node], "node", arguments, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    values = iter(ReferenceEvaluator(model).run(None, given))
    return [np.asarray(next(values), order="C") if name else np.zeros((), "float32") for name in node.output]


def bind_attributes(node: onnx.NodeProto, actual: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function body with its references to the function's attributes resolved; absent ones are left out."""
    bound = onnx.NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            bound.attribute.append(attribute)
        elif attribute.ref_attr_name in actual:
            renamed = onnx.AttributeProto()
            renamed.CopyFrom(actual[attribute.ref_attr_name])
            renamed.name = attribute.name
            bound.attribute.append(renamed)
    return bound
