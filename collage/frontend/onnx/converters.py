"""Our own ONNX converters, where TVM's lower to TIR functions, spread one operator over many, or leave out a case.

A converter takes a `Node` and returns one Relax expression, or the list of the node's outputs. Shapes are static.
What is changed, and why:

- Clip, Pad, Tile, Einsum, CumSum: one Relax operator instead of `call_tir`, which no pattern matches and no
  exporter reads;
- Gather: `take`, with wrapping for negative indices, instead of compare, add, select and take;
- Shape, Size, EyeLike, Constant: constants;
- Min, Max, Sum, Mean: pairwise operators instead of stack and reduce;
- Softmax and its like before opset 13: without the two reshapes when they change nothing;
- Cast: one `astype` (ONNX leaves float to integer out of range undefined);
- LayerNormalization: also its second and third output; InstanceNormalization: one operator; Dropout: gone;
- Pow: with an exponent of another dtype; IsInf: with a sign; Elu: in the dtype of its input;
- Mod: of floats by infinite divisors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from tvm.relax import op

from collage.errors import FrontendError, UnsupportedOperatorError
from collage.frontend.onnx.file import describe_node, read_tensor
from collage.frontend.onnx.node import Node, shape_of
from collage.frontend.values import constant, dtype_of, value_of

Converter = Callable[[Node], Any]


def _clip(node: Node) -> Any:
    data = node.input(0)
    if node.opset < 11:
        bounds = [node.attributes.get("min"), node.attributes.get("max")]
    else:
        arrays = [value_of(node.input(1)), value_of(node.input(2))]
        if any(node.input(i) is not None and arrays[i - 1] is None for i in (1, 2)):
            return _clip_by_tensors(data, node.input(1), node.input(2))
        bounds = [None if array is None else array.item() for array in arrays]
    lower = None if bounds[0] is None or np.isnan(bounds[0]) or bounds[0] == -np.inf else bounds[0]
    upper = None if bounds[1] is None or np.isnan(bounds[1]) or bounds[1] == np.inf else bounds[1]
    dtype = dtype_of(data.ty)
    if lower is not None and upper is not None and lower <= upper:
        return op.clip(data, lower, upper)
    if lower == 0 and upper is None and "float" in dtype:
        return op.nn.relu(data)
    if lower is not None:
        data = op.maximum(data, constant(lower, dtype))
    return data if upper is None else op.minimum(data, constant(upper, dtype))


def _clip_by_tensors(data: Any, lower: Any, upper: Any) -> Any:
    data = data if lower is None else op.maximum(data, lower)
    return data if upper is None else op.minimum(data, upper)


_PAD_MODES = MappingProxyType({"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"})


def _pad(node: Node) -> Any:
    data = node.input(0)
    rank = len(shape_of(data))
    if node.opset < 11:
        pads = np.array(node.attributes.get("pads", node.attributes.get("paddings")))
        value, axes = node.attributes.get("value", 0.0), np.arange(rank)
    else:
        given, filling, chosen = node.array(1), node.array(2), node.array(3)
        if given is None:
            raise FrontendError(f"{describe_node(node.proto)}: it has no pads")
        pads, value = given, 0.0 if filling is None else filling.item()
        axes = np.arange(rank) if chosen is None else chosen
    mode = node.text("mode", "constant")
    if mode not in _PAD_MODES or (mode != "constant" and (pads < 0).any()):
        raise UnsupportedOperatorError(
            f"{describe_node(node.proto)}: mode '{mode}' is not supported with pads {pads.tolist()}"
        )
    widths = np.zeros((rank, 2), "int64")
    widths[axes.astype("int64") % rank] = pads.reshape(2, -1).T
    return op.nn.pad(data, widths.reshape(-1).tolist(), _PAD_MODES[mode], value)


def _gather(node: Node) -> Any:
    data, indices = node.input(0), node.input(1)
    shape = shape_of(data)
    axis = int(node.attributes.get("axis", 0)) % len(shape)
    known = value_of(indices)
    if known is not None:
        if (known < -shape[axis]).any() or (known >= shape[axis]).any():
            raise FrontendError(f"{describe_node(node.proto)}: an index is outside [-{shape[axis]}, {shape[axis] - 1}]")
        indices = constant(np.where(known < 0, known + shape[axis], known), str(known.dtype))
    return op.take(data, indices, axis, mode="wrap")  # the default mode reads out of bounds when an index is


def _tile(node: Node) -> Any:
    repeats = node.array(1)
    return op.tile(node.input(0), [] if repeats is None else repeats.tolist())


def _einsum(node: Node) -> Any:
    return op.einsum(tuple(node.inputs), node.text("equation", "").replace(" ", ""))


def _cumsum(node: Node) -> Any:
    axis = node.array(1)
    position = int(np.ravel(axis)[0]) if axis is not None else 0
    reverse = node.attributes.get("reverse", 0) != 0
    data = op.flip(node.input(0), position) if reverse else node.input(0)
    data = op.cumsum(data, position, exclusive=node.attributes.get("exclusive", 0) != 0)
    return op.flip(data, position) if reverse else data


def _shape(node: Node) -> Any:
    shape = shape_of(node.input(0))
    return constant(shape[node.attributes.get("start", 0) : node.attributes.get("end")], "int64")


def _size(node: Node) -> Any:
    return constant(np.prod(shape_of(node.input(0)), dtype="int64"), "int64")


def _constant(node: Node) -> Any:
    for name, value in node.attributes.items():
        if name == "value":
            return constant(read_tensor(value, node.folder))
        if name in ("value_float", "value_floats"):
            return constant(value, "float32")
        if name in ("value_int", "value_ints"):
            return constant(value, "int64")
    raise UnsupportedOperatorError(f"{describe_node(node.proto)}: only dense numeric constants are supported")


def _pairwise(combine: Callable[[Any, Any], Any]) -> Converter:
    return lambda node: functools.reduce(combine, node.inputs)


def _mean(node: Node) -> Any:
    total = functools.reduce(op.add, node.inputs)
    return op.divide(total, constant(len(node.inputs), dtype_of(node.input(0).ty)))


def _softmax(apply: Callable[..., Any]) -> Converter:
    def convert(node: Node) -> Any:
        data = node.input(0)
        shape = shape_of(data)
        axis = int(node.attributes.get("axis", -1 if node.opset >= 13 else 1)) % len(shape)
        if node.opset >= 13 or axis == len(shape) - 1 or all(extent == 1 for extent in shape[axis + 1 :]):
            return apply(data, axis)
        rows = int(
            np.prod(shape[:axis], dtype="int64")
        )  # until opset 12 the input counts as a matrix, split at the axis
        return op.reshape(apply(op.reshape(data, (rows, -1)), 1), shape)

    return convert


def _cast(node: Node) -> Any:
    target = str(onnx.helper.tensor_dtype_to_np_dtype(node.attributes["to"]))
    return op.astype(node.input(0), target)


def _dropout(node: Node) -> Any:
    training = node.array(2)
    if training is not None and training.item():
        raise FrontendError(f"{describe_node(node.proto)}: it is in training mode")
    data = node.input(0)
    mask = constant(np.ones(shape_of(data), "bool")) if len(node.proto.output) > 1 else None
    return [data] if mask is None else [data, mask]


def _layer_norm(node: Node) -> Any:
    data, scale, bias = node.input(0), node.input(1), node.input(2)
    rank, dtype = len(shape_of(data)), dtype_of(data.ty)
    axes = list(range(int(node.attributes.get("axis", -1)) % rank, rank))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    extents = tuple(shape_of(data)[axis] for axis in axes)
    scale = scale if shape_of(scale) == extents else op.broadcast_to(scale, extents)
    if bias is None:
        bias = constant(np.zeros(extents), dtype)
    elif shape_of(bias) != extents:
        bias = op.broadcast_to(bias, extents)
    results = [op.nn.layer_norm(data, scale, bias, axes, epsilon)]
    if len(node.proto.output) > 1:
        deviation = op.sqrt(op.add(op.variance(data, axes, keepdims=True), constant(epsilon, dtype)))
        results += [op.mean(data, axes, keepdims=True), op.divide(constant(1.0, dtype), deviation)]
    return results


def _instance_norm(node: Node) -> Any:
    data = node.input(0)
    axes = list(range(2, len(shape_of(data))))
    return op.nn.instance_norm(data, node.input(1), node.input(2), 1, axes, float(node.attributes.get("epsilon", 1e-5)))


def _gemm(node: Node) -> Any:
    left, right, addend = node.input(0), node.input(1), node.input(2)
    dtype = dtype_of(left.ty)
    left = op.permute_dims(left, [1, 0]) if node.attributes.get("transA", 0) else left
    right = op.permute_dims(right, [1, 0]) if node.attributes.get("transB", 0) else right
    alpha, beta = float(node.attributes.get("alpha", 1.0)), float(node.attributes.get("beta", 1.0))
    if alpha != 1.0:  # on the right-hand side, where it usually meets a constant weight
        right = op.multiply(right, constant(alpha, dtype))
    product = op.matmul(left, right)
    if addend is None:
        return product
    return op.add(product, addend if beta == 1.0 else op.multiply(addend, constant(beta, dtype)))


def _pow(node: Node) -> Any:
    base, exponent = node.input(0), node.input(1)
    own, other = dtype_of(base.ty), dtype_of(exponent.ty)
    if "float" not in own and "float" not in other:
        raise UnsupportedOperatorError(f"{describe_node(node.proto)}: TVM has no powers of integers")
    if own == other:
        return op.power(base, exponent)
    if "float" in own or "float" not in other:
        return op.power(base, op.astype(exponent, own))
    return op.astype(op.power(op.astype(base, other), exponent), own)


def _mod(node: Node) -> Any:
    left, right = node.input(0), node.input(1)
    if node.attributes.get("fmod", 0):
        return op.mod(left, right)
    dtype = dtype_of(left.ty)
    if "float" not in dtype:
        return op.floor_mod(left, right)
    # Not left - floor(left / right) * right, which is no number where the divisor is infinite.
    zero, rest = constant(0.0, dtype), op.mod(left, right)
    apart = op.logical_xor(op.less(rest, zero), op.less(right, zero))
    return op.where(op.logical_and(op.not_equal(rest, zero), apart), op.add(rest, right), rest)


def _is_inf(node: Node) -> Any:
    data = node.input(0)
    positive, negative = node.attributes.get("detect_positive", 1), node.attributes.get("detect_negative", 1)
    if positive and negative:
        return op.isinf(data)
    if not positive and not negative:
        return constant(np.zeros(shape_of(data), "bool"))
    return op.equal(data, constant(np.inf if positive else -np.inf, dtype_of(data.ty)))


def _eye_like(node: Node) -> Any:
    data = node.input(0)
    rows, columns = shape_of(data)
    chosen = node.attributes.get("dtype")
    dtype = dtype_of(data.ty) if chosen is None else str(onnx.helper.tensor_dtype_to_np_dtype(chosen))
    return constant(np.eye(rows, columns, node.attributes.get("k", 0)), dtype)


def _elu(node: Node) -> Any:
    data, dtype = node.input(0), dtype_of(node.input(0).ty)
    alpha = constant(node.attributes.get("alpha", 1.0), dtype)
    negative = op.multiply(op.subtract(op.exp(op.minimum(data, constant(0, dtype))), constant(1, dtype)), alpha)
    return op.add(op.nn.relu(data), negative)


#: ONNX operator -> converter.
CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        "Cast": _cast,
        "Clip": _clip,
        "Constant": _constant,
        "CumSum": _cumsum,
        "Dropout": _dropout,
        "Einsum": _einsum,
        "Elu": _elu,
        "EyeLike": _eye_like,
        "Gather": _gather,
        "Gemm": _gemm,
        "InstanceNormalization": _instance_norm,
        "IsInf": _is_inf,
        "LayerNormalization": _layer_norm,
        "LogSoftmax": _softmax(op.nn.log_softmax),
        "Max": _pairwise(op.maximum),
        "Mean": _mean,
        "Min": _pairwise(op.minimum),
        "Mod": _mod,
        "Pad": _pad,
        "Pow": _pow,
        "Shape": _shape,
        "Size": _size,
        "Softmax": _softmax(op.nn.softmax),
        "Sum": _pairwise(op.add),
        "Tile": _tile,
    }
)
