"""What has to happen to a node before TVM's converter may see it.

Those converters ignore some attributes, and would give wrong results without a word: such nodes are refused. Padding
that is given by a rule (`auto_pad`, the `output_shape` of a transposed convolution) is written out: shapes are
static.
"""

from __future__ import annotations

from types import MappingProxyType

from collage.errors import UnsupportedOperatorError
from collage.frontend.onnx.file import describe_node
from collage.frontend.onnx.node import Node, shape_of
from collage.frontend.values import dtype_of

#: (operator, attribute) -> the only value that TVM's converter implements.
_IMPLEMENTED = MappingProxyType(
    {
        ("BatchNormalization", "training_mode"): 0,
        ("Resize", "antialias"): 0,
        ("RMSNormalization", "axis"): -1,
        ("RoiAlign", "mode"): "avg",
        ("SpaceToDepth", "mode"): "DCR",
    }
)

#: Operators whose number of results depends on data; TVM's converters return as many as there can be at most.
_DATA_DEPENDENT = frozenset({"AllClassNMS", "NonMaxSuppression", "Unique"})


def adapt(node: Node) -> None:
    """Write rule-given padding into the attributes of a node.

    Raises
    ------
    UnsupportedOperatorError
        An attribute has a value that TVM's converter ignores, or the shape of the result depends on data.
    """
    operator = node.proto.op_type
    if operator in _DATA_DEPENDENT:
        raise UnsupportedOperatorError(f"{describe_node(node.proto)}: the shape of its result depends on data")
    for (name, attribute), implemented in _IMPLEMENTED.items():
        if name == operator and attribute in node.attributes:
            value = node.attributes[attribute]
            value = value.decode() if isinstance(value, bytes) else value
            if value != implemented:
                raise UnsupportedOperatorError(f"{describe_node(node.proto)}: {attribute}={value} is not supported")
    if operator == "Resize":
        _check_scales(node)
    if operator == "BitShift" and not dtype_of(node.input(0).ty).startswith("uint"):
        raise UnsupportedOperatorError(f"{describe_node(node.proto)}: shifts of signed integers are not supported")
    if operator == "ConvTranspose":
        _transposed_padding(node)
    elif "auto_pad" in node.attributes:
        _convolution_padding(node)


def _check_scales(node: Node) -> None:
    """TVM's converter rounds the size and then resizes by the rounded size over the old one, not by the scale."""
    sizes = node.array(3)
    scales = node.array(1 if node.opset < 11 else 2)
    if scales is None or not scales.size or (sizes is not None and sizes.size):
        return
    for extent, scale in zip(shape_of(node.input(0)), scales.tolist(), strict=False):
        if abs(extent * scale - round(extent * scale)) > 1e-3:
            raise UnsupportedOperatorError(
                f"{describe_node(node.proto)}: scales={scales.tolist()} do not give whole extents: not supported"
            )


def _convolution_padding(node: Node) -> None:
    """`auto_pad` of a convolution or pooling: SAME keeps ceil(extent / stride), the odd one at the end or the start."""
    mode = node.text("auto_pad", "NOTSET")
    del node.attributes["auto_pad"]
    if mode == "NOTSET":
        return
    extents, kernel, strides, dilations = _geometry(node)
    totals = [
        max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0) if mode != "VALID" else 0
        for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True)
    ]
    node.attributes["pads"] = _split(totals, mode == "SAME_LOWER")


def _transposed_padding(node: Node) -> None:
    """`output_shape` or `auto_pad` of a transposed convolution: padding takes away what would be too much."""
    mode = node.text("auto_pad", "NOTSET")
    wanted = node.attributes.pop("output_shape", None)
    node.attributes.pop("auto_pad", None)
    if wanted is None and mode == "NOTSET":
        return
    extents, kernel, strides, dilations = _geometry(node)
    added = list(node.attributes.get("output_padding") or [0] * len(extents))
    if wanted is None:
        wanted = [extent * stride for extent, stride in zip(extents, strides, strict=True)]
    totals = []
    for axis, (extent, size, stride, dilation) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        full = stride * (extent - 1) + added[axis] + (size - 1) * dilation + 1
        excess = 0 if mode == "VALID" else full - wanted[-len(extents) + axis]
        added[axis] += max(-excess, 0)  # too little: the result is extended at its end
        totals.append(max(excess, 0))
    node.attributes["output_padding"] = added
    node.attributes["pads"] = _split(totals, mode != "SAME_UPPER")


def _geometry(node: Node) -> tuple[tuple[int, ...], list[int], list[int], list[int]]:
    """Spatial extents of the input, kernel, strides and dilations."""
    extents = shape_of(node.input(0))[2:]
    kernel = node.attributes.get("kernel_shape") or shape_of(node.input(1))[2:]
    strides = node.attributes.get("strides") or [1] * len(extents)
    dilations = node.attributes.get("dilations") or [1] * len(extents)
    return extents, list(kernel), list(strides), list(dilations)


def _split(totals: list[int], larger_first: bool) -> list[int]:
    """Total padding per axis -> ONNX `pads`: all at the starts, then all at the ends."""
    smaller = [total // 2 for total in totals]
    larger = [total - total // 2 for total in totals]
    return [*larger, *smaller] if larger_first else [*smaller, *larger]
