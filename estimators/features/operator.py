"""One operator of a workload as numbers: its work, its traffic, and the loop nest behind it.

Every anchor is seen as a matrix product (a convolution as its implicit GEMM, "im2col"): M rows of the result, N
columns, K products per element, in `groups` independent problems. So a layer of a network that was never seen is near
layers that were. Latencies of real kernels are compared with the *roofline* (Williams, Waterman, Patterson 2009): no
kernel is faster than its arithmetic at peak rate, or its traffic at peak bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Operator classes, in the order of their one-hot features.
CLASSES = ("convolution", "depthwise", "transposed", "matmul", "elementwise", "reduction", "layout", "gather", "other")
ANCHORS = frozenset(CLASSES[:4])

_ELEMENTWISE = frozenset(
    (
        "abs", "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "clip", "negative",
        "where", "astype", "less", "greater", "equal", "not_equal", "less_equal", "greater_equal",
        "logical_and", "logical_or", "logical_not", "floor", "ceil", "round", "square", "floor_divide", "mod",
        "sign", "isfinite", "isnan", "isinf", "bitwise_and", "bitwise_or", "bitwise_not", "nn.relu",
        "nn.leakyrelu", "nn.prelu", "nn.batch_norm", "exp", "log", "sqrt", "rsqrt", "erf", "tanh", "sigmoid",
        "sin", "cos", "tan", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.hardswish", "nn.softplus",
    )
)  # fmt: skip
#: Flops per element where a polynomial or a division stands behind an operator; others take one.
EXPENSIVE = {
    **dict.fromkeys(("exp", "log", "sin", "cos", "tan", "power"), 10),
    **dict.fromkeys(("tanh", "sigmoid", "erf", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus"), 15),
    **dict.fromkeys(("divide", "sqrt", "rsqrt", "nn.softmax", "nn.log_softmax"), 5),
    **dict.fromkeys(("nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm"), 8),
}
_REDUCTION = frozenset(
    (
        "sum", "mean", "max", "min", "prod", "variance", "std", "argmax", "argmin", "nn.softmax",
        "nn.log_softmax", "nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm", "nn.max_pool1d",
        "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d",
        "nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d", "cumsum", "cumprod",
    )
)  # fmt: skip
_LAYOUT = frozenset(
    (
        "reshape", "permute_dims", "transpose", "squeeze", "expand_dims", "flatten", "split", "concat",
        "strided_slice", "broadcast_to", "tile", "repeat", "nn.pad", "layout_transform", "flip", "stack",
        "collapse_sum_to", "tuple", "tuple_get", "nn.pixel_shuffle", "dynamic_strided_slice",
    )
)  # fmt: skip
#: Layout operators that only rename the same bytes: libraries give them no kernel.
VIEWS = frozenset(("reshape", "squeeze", "expand_dims", "flatten", "tuple", "tuple_get"))
_GATHER = frozenset(("take", "gather_elements", "gather_nd", "one_hot", "scatter_elements", "scatter_nd", "topk"))
_CONVOLUTIONS = frozenset(f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose"))
#: Operators whose class is known by name, without `relax.`.
NAMED = _ELEMENTWISE | _REDUCTION | _LAYOUT | _GATHER | _CONVOLUTIONS | {"matmul"}


#: Opaque nodes (`collage.annotations.opaque`) whose work is that of an anchor; the others are "other".
_OPAQUE = {
    **dict.fromkeys(("LSTM", "GRU", "RNN", "MatMulInteger", "QLinearMatMul"), "matmul"),
    **dict.fromkeys(("com.microsoft.FusedMatMul", "com.microsoft.MatMulIntegerToFloat"), "matmul"),
    **dict.fromkeys(("ConvInteger", "QLinearConv", "com.microsoft.FusedConv"), "convolution"),
}
#: Matrices that a recurrent layer multiplies its input and its state by.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True)
class OperatorFacts:
    """What one operator does, whatever surrounds it.

    Attributes
    ----------
    name
        Without `relax.`.
    cls
        One of `CLASSES`.
    flops
        Floating-point operations.
    input_bytes, weight_bytes, output_bytes
        Traffic: of activations read, of constants read, of results written.
    rows, columns, products
        M, N, K of the (implicit) matrix product of one group; elements, 1, 1 of another operator.
    groups
        Independent matrix products.
    kernel
        Elements of the window (convolutions, pools), else 1.
    channels_in
        Of one group of a convolution, else 0.
    stride
        Elements that the window moves by, over all axes: 4 for a stride of 2 over two axes.
    inner
        Last extent of the result.
    rank
        Of the result.
    run
        Elements in a row of the result that an elementwise operator computes without a change in how it reads its
        operands: all, or fewer where one is broadcast.
    """

    name: str
    cls: str
    flops: float
    input_bytes: float
    weight_bytes: float
    output_bytes: float
    rows: float
    columns: float
    products: float
    groups: float
    kernel: float
    channels_in: float
    stride: float
    inner: float
    rank: int
    run: float

    @property
    def bytes(self) -> float:
        return self.input_bytes + self.weight_bytes + self.output_bytes

    @property
    def is_view(self) -> bool:
        return self.name in VIEWS


def operator_facts(node: Mapping[str, Any], inputs: Sequence[Any], weights: Sequence[Any]) -> OperatorFacts:
    """The facts of one node of a description.

    Parameters
    ----------
    node
        `op`, `attrs`, `args`, `out` as `collage.graph.description` says.
    inputs
        Types of the operands that are computed or given, in their order.
    weights
        Types of the operands that are constants.
    """
    name = node["op"].removeprefix("relax.")
    outputs = tensors(node["out"])
    elements = sum(size(shape) for shape, _ in outputs)
    in_bytes = sum(nbytes(t) for ty in inputs for t in tensors(ty))
    weight_bytes = sum(nbytes(t) for ty in weights for t in tensors(ty))
    out_bytes = sum(map(nbytes, outputs))
    shape = outputs[0][0] if outputs else []
    cls = _class(name)
    loops = {
        "rows": elements,
        "columns": 1.0,
        "products": 1.0,
        "groups": 1.0,
        "kernel": 1.0,
        "channels_in": 0.0,
    }
    flops = elements * EXPENSIVE.get(name, 1)
    constant = bool(weights)
    operands = [t for ty in (*inputs, *weights) for t in tensors(ty)]
    opaque = name.removeprefix("onnx.") if name.startswith("onnx.") else ""
    if opaque in _GATES and operands and len(operands[0][0]) == 3:
        loops, flops = _recurrent(node["attrs"], _GATES[opaque], operands[0][0])
    elif opaque in _OPAQUE and (found := _matrices(operands, shape, cls)):
        loops, flops = found
    elif name.startswith("nn.conv"):
        kernel = (tensors(weights[0]) or operands[-1:])[0][0] if weights else operands[-1][0]
        source = tensors(inputs[0])[0][0] if inputs else shape
        loops, flops = _convolution(node["attrs"], "transpose" in name, source, kernel, shape)
        if cls == "convolution" and loops["groups"] > 1 and loops["channels_in"] == 1:
            cls = "depthwise"
    elif name == "matmul" and operands:
        products = _last(tensors(inputs[0])[0][0] if inputs else operands[0][0])
        columns = float(shape[-1]) if shape else 1.0
        rows = float(shape[-2]) if len(shape) > 1 else 1.0
        groups = max(1.0, elements / max(1.0, rows * columns))
        if constant:  # one weight for the whole batch: its rows are one long matrix
            rows, groups = rows * groups, 1.0
        loops |= {"rows": rows, "columns": columns, "products": products, "groups": groups}
        flops = 2.0 * elements * products
    elif "pool" in name:
        window = node["attrs"].get("pool_size") or [1]
        read = sum(size(s) for s, _ in operands)
        area = float(math.prod(map(int, window))) if "adaptive" not in name else read / max(1.0, elements)
        loops |= {"kernel": area}
        flops = elements * area
    elif cls == "reduction":
        read = sum(size(s) for s, _ in operands[:1])
        loops |= {"products": read / max(1.0, elements), "columns": _last(operands[0][0]) if operands else 1.0}
        flops = max(read, elements) * EXPENSIVE.get(name, 1)
    elif cls == "gather":
        in_bytes, weight_bytes, flops = in_bytes if not weights else out_bytes, 0.0, 0.0
    elif cls == "layout":
        flops = 0.0
        if name in VIEWS:
            in_bytes = weight_bytes = out_bytes = 0.0
    return OperatorFacts(
        name=name,
        cls=cls,
        flops=float(flops),
        input_bytes=float(in_bytes),
        weight_bytes=float(weight_bytes),
        output_bytes=float(out_bytes),
        stride=float(math.prod(map(int, node["attrs"].get("strides") or ()))),
        inner=_last(shape),
        rank=len(shape),
        run=min((_run(s, shape) for s, _ in operands), default=elements) if cls == "elementwise" else elements,
        **loops,
    )


def tensors(ty: Any) -> list[tuple[list[Any], str]]:
    """The tensor types inside a described type: `[shape, dtype]`, or a list of such."""
    if len(ty) == 2 and isinstance(ty[1], str):
        return [(ty[0] or [], ty[1])]
    return [tensor for field in ty for tensor in tensors(field)]


def size(shape: Sequence[Any]) -> float:
    """Number of elements."""
    return float(math.prod(int(extent) for extent in shape))


def nbytes(tensor: tuple[Sequence[Any], str]) -> float:
    """Bytes of a tensor type; a dtype whose width is not in its name counts as one byte."""
    digits = "".join(c for c in tensor[1] if c.isdigit())
    return size(tensor[0]) * (max(1, int(digits) // 8) if digits else 1)


def _class(name: str) -> str:
    if name.startswith("onnx."):
        return _OPAQUE.get(name.removeprefix("onnx."), "other")
    if name.startswith("nn.conv"):
        return "transposed" if "transpose" in name else "convolution"
    if name == "matmul":
        return "matmul"
    for names, cls in (
        (_ELEMENTWISE, "elementwise"),
        (_REDUCTION, "reduction"),
        (_LAYOUT, "layout"),
        (_GATHER, "gather"),
    ):
        if name in names:
            return cls
    return "other"


def _convolution(
    attrs: Mapping[str, Any], transposed: bool, source: Sequence[Any], kernel: Sequence[Any], result: Sequence[Any]
) -> tuple[dict[str, float], float]:
    """The implicit GEMM of a convolution, and its flops. A transposed one multiplies per *input* element."""
    groups = float(attrs.get("groups") or 1)
    layout = attrs.get("data_layout") or ""
    source, result = _planes(source, layout, "NC"), _planes(result, attrs.get("out_layout") or layout, "NC")
    window = size(_planes(kernel, attrs.get("kernel_layout") or "", "OI")[2:])
    out_channels, in_channels = float(result[1]), float(source[1])
    spatial = size((source if transposed else result)[2:]) * float(result[0])
    rows = spatial
    columns = out_channels / groups * (window if transposed else 1.0)
    products = in_channels / groups * (1.0 if transposed else window)
    loops = {
        "rows": rows,
        "columns": columns,
        "products": products,
        "groups": groups,
        "kernel": window,
        "channels_in": in_channels / groups,
    }
    return loops, 2.0 * rows * columns * products * groups


def _planes(shape: Sequence[Any], layout: str, first: str) -> Sequence[Any]:
    """Extents with those of two axes first; as they are where their layout is not known."""
    if len(layout) != len(shape) or not set(first) <= set(layout):
        return shape
    return [shape[layout.index(axis)] for axis in sorted(layout, key=lambda axis: (first + layout).index(axis))]


def _recurrent(attrs: Mapping[str, Any], gates: int, source: Sequence[Any]) -> tuple[dict[str, float], float]:
    """The products of a recurrent layer over all its steps as one; its input is (steps, batch, features)."""
    hidden = float(attrs.get("hidden_size") or 1)
    ways = 2.0 if attrs.get("direction") == "bidirectional" else 1.0
    rows, columns, products = float(source[0]) * float(source[1]), gates * hidden, float(source[2]) + hidden
    loops = {"rows": rows, "columns": columns, "products": products, "groups": ways, "kernel": 1.0, "channels_in": 0.0}
    return loops, 2.0 * rows * columns * products * ways


def _matrices(
    operands: Sequence[tuple[Sequence[Any], str]], result: Sequence[Any], cls: str
) -> tuple[dict[str, float], float] | None:
    """The (implicit) matrix product of a quantised layer: its operands are the tensors among scales and zero points."""
    large = [shape for shape, _ in operands if len(shape) > 1]
    if len(large) < 2 or len(result) < 2:
        return None
    if cls == "convolution" and len(large[0]) == len(large[1]) > 2 and float(large[1][1]):
        groups = float(large[0][1]) / float(large[1][1])
        return _convolution({"groups": groups}, False, large[0], large[1], result)
    columns, rows, products = float(result[-1]), float(result[-2]), float(large[0][-1])
    groups = max(1.0, size(result) / max(1.0, rows * columns))
    loops = {
        "rows": rows,
        "columns": columns,
        "products": products,
        "groups": groups,
        "kernel": 1.0,
        "channels_in": 0.0,
    }
    return loops, 2.0 * size(result) * products


def _run(operand: Sequence[Any], result: Sequence[Any]) -> float:
    """Elements in a row of the result that take the same element of a broadcast operand, or one after the other."""
    aligned = [1] * (len(result) - len(operand)) + [int(extent) for extent in operand]
    pairs = [(mine, int(extent)) for mine, extent in zip(aligned, result, strict=False) if int(extent) != 1]
    run, repeated = 1.0, bool(pairs) and pairs[-1][0] == 1
    for mine, extent in reversed(pairs):
        if (mine == 1) != repeated:
            break
        run *= extent
    return run


def _last(shape: Sequence[Any]) -> float:
    return float(shape[-1]) if shape else 1.0


def operator_class(operators: Sequence[str]) -> str:
    """The class that a workload is reported under: of its first anchor, else of its first operator that moves data."""
    classes = [_class(name.removeprefix("relax.")) for name in operators]
    kernels = [cls for cls, name in zip(classes, operators, strict=True) if name.removeprefix("relax.") not in VIEWS]
    return next((cls for cls in classes if cls in ANCHORS), next(iter(kernels or classes), "other"))
