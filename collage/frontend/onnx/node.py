"""An ONNX node as converters see it: inputs are Relax expressions, attributes are Python values, shapes are static."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from collage.errors import FrontendError
from collage.frontend.onnx.file import describe_node
from collage.frontend.passes.constants import value_of
from collage.frontend.specs import static_shape


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
            raise FrontendError(
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
    FrontendError: it has none.
    """
    shape = static_shape(expression.ty)
    if shape is None:
        raise FrontendError(f"a static shape is needed, but the type is {expression.ty}")
    return shape
