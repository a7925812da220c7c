"""What the exporter writes means what Relax means: every converter, on both engines, against TVM's own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from relax_cases import Spec, module_of, random_inputs, run_engine, run_tvm
from tvm import relax

from collage.backends.onnx.export import export_onnx, supported_operators, unsupported_reason
from collage.backends.onnx.openvino import unsupported_by_openvino

op, nn = relax.op, relax.op.nn
Case = tuple[Callable[..., Any], tuple[Spec, ...]]


def f32(*shape: int) -> Spec:
    return shape, "float32"


def i32(*shape: int) -> Spec:
    return shape, "int32"


def i64(*shape: int) -> Spec:
    return shape, "int64"


def boolean(*shape: int) -> Spec:
    return shape, "bool"


def weight(*shape: int, seed: int = 1, dtype: str = "float32") -> Any:
    """A constant, as weights are after the frontend."""
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype), dtype)


def const(value: Any, dtype: str) -> Any:
    return relax.const(np.asarray(value, dtype=dtype), dtype)


UNARY = {
    **{
        name: (-3.0, 3.0)
        for name in ("abs", "negative", "sigmoid", "tanh", "erf", "exp", "sin", "cos", "ceil", "floor")
    },
    **{name: (-3.0, 3.0) for name in ("round", "sign", "square", "trunc", "atan", "sinh", "cosh", "asinh", "tan")},
    **{name: (0.1, 3.0) for name in ("sqrt", "rsqrt", "log")},
    **{name: (-0.9, 0.9) for name in ("asin", "acos", "atanh")},
    "acosh": (1.1, 4.0),
}
#: Operators that need inputs from a range of their own.
RANGES: dict[str, tuple[float, float]] = {f"unary {name}": bounds for name, bounds in UNARY.items()}

CASES: dict[str, Case] = {
    **{f"unary {name}": (lambda x, name=name: getattr(op, name)(x), (f32(3, 7),)) for name in UNARY},
    **{
        f"{name} int": (lambda x, name=name: getattr(op, name)(x), (i32(3, 7),))
        for name in ("abs", "negative", "square")
    },
    **{
        f"{name} {shapes}": (lambda x, y, name=name: getattr(op, name)(x, y), shapes)
        for name in ("add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal", "greater", "equal")
        for shapes in ((f32(2, 3, 4), f32(3, 1)), (i32(4), i32(2, 4)))
    },
    "add int64": (lambda x: op.add(x, const(7, "int64")), (i64(5),)),
    "subtract scalars": (op.subtract, (f32(), f32())),
    "add literal": (lambda x: op.add(x, const(1.5, "float32")), (f32(2, 2),)),
    "greater_equal": (op.greater_equal, (i64(3, 4), i64(4))),
    "not_equal": (op.not_equal, (i32(3, 4), i32(4))),
    "divide": (lambda x, y: op.divide(x, op.add(op.abs(y), const(0.5, "float32"))), (f32(2, 3), f32(3))),
    "divide int": (lambda x: op.divide(x, const([2, -2, 3], "int32")), (i32(8, 3),)),
    "floor_divide": (lambda x: op.floor_divide(x, const([0.7, -0.7], "float32")), (f32(8, 2),)),
    "floor_divide int": (lambda x: op.floor_divide(x, const([2, -2, 3], "int32")), (i32(8, 3),)),
    "mod": (lambda x: op.mod(x, const([0.7, -0.7], "float32")), (f32(8, 2),)),
    "mod int": (lambda x: op.mod(x, const([2, -2, 3], "int32")), (i32(8, 3),)),
    "floor_mod": (lambda x: op.floor_mod(x, const([0.7, -0.7], "float32")), (f32(8, 2),)),
    "floor_mod int": (lambda x: op.floor_mod(x, const([2, -2, 3], "int32")), (i32(8, 3),)),
    "power": (lambda x: op.power(x, const(3.0, "float32")), (f32(3, 4),)),
    "power tensors": (lambda x, y: op.power(op.abs(x), y), (f32(3, 4), f32(4))),
    "logical": (
        lambda x, y: (op.logical_and(x, y), op.logical_or(x, y), op.logical_xor(x, y), op.logical_not(x)),
        (boolean(3, 4), boolean(4)),
    ),
    "bitwise": (lambda x, y: (op.bitwise_and(x, y), op.bitwise_or(x, y), op.bitwise_xor(x, y)), (i32(9), i32(9))),
    "isnan": (
        lambda x: (op.isnan(op.log(x)), op.isinf(op.exp(op.multiply(x, const(60, "float32")))), op.isfinite(op.log(x))),
        (f32(4, 5),),
    ),
    "quantize": (lambda x: op.quantize(x, const(0.3, "float32"), const(7, "uint8"), -1, "uint8"), (f32(4, 5),)),
    "quantize channels": (
        lambda x: op.quantize(x, const([0.3, 0.4], "float32"), const([1, -1], "int8"), 1, "int8"),
        (f32(3, 2, 5),),
    ),
    "dequantize": (
        lambda x: op.dequantize(x, const(0.3, "float32"), const(7, "int8"), -1, "float32"),
        (((4, 5), "int8"),),
    ),
    "clip": (lambda x: op.clip(x, -1, 1.25), (f32(4, 5),)),
    "clip relu6": (lambda x: op.clip(x, 0, 6), (f32(4, 5),)),
    "clip below": (lambda x: op.clip(x, 0, float("inf")), (f32(4, 5),)),
    "clip int": (lambda x: op.clip(x, -1, 1), (i32(4, 5),)),
    "relu": (nn.relu, (f32(4, 5),)),
    "leakyrelu": (lambda x: nn.leakyrelu(x, 0.2), (f32(4, 5),)),
    "prelu": (lambda x: nn.prelu(x, weight(4)), (f32(2, 4, 3, 3),)),
    "prelu last axis": (lambda x: nn.prelu(x, weight(3), axis=-1), (f32(2, 4, 3, 3),)),
    "prelu last axis as long as the channels": (lambda x: nn.prelu(x, weight(4), axis=-1), (f32(2, 4, 3, 4),)),
    "prelu one slope": (lambda x: nn.prelu(x, weight(1)), (f32(2, 1, 3, 3),)),
    "gelu": (nn.gelu, (f32(4, 5),)),
    "gelu_tanh": (nn.gelu_tanh, (f32(4, 5),)),
    "silu": (nn.silu, (f32(4, 5),)),
    "selu": (nn.selu, (f32(4, 5),)),
    "softplus": (nn.softplus, (f32(4, 5),)),
    "softplus scaled": (lambda x: nn.softplus(x, beta=2.0), (f32(4, 5),)),
    "softmax": (lambda x: nn.softmax(x, -1), (f32(2, 4, 5),)),
    "softmax middle": (lambda x: nn.softmax(x, 1), (f32(2, 4, 5),)),
    "log_softmax": (lambda x: nn.log_softmax(x, 1), (f32(2, 4, 5),)),
    "astype": (
        lambda x: (op.astype(x, "int32"), op.astype(x, "int64"), op.astype(x, "bool"), op.astype(x, "float32")),
        (f32(5, 5),),
    ),
    "astype int": (
        lambda x: (op.astype(x, "float32"), op.astype(x, "int64"), op.astype(x, "bool"), op.astype(x, "int32")),
        (i32(5, 5),),
    ),
    "astype bool": (lambda x: (op.astype(x, "float32"), op.astype(x, "int32"), op.astype(x, "int64")), (boolean(5),)),
    "astype bytes": (lambda x: (op.astype(x, "float32"), op.astype(x, "int32")), (((5,), "uint8"),)),
    "where": (op.where, (boolean(3, 1), f32(3, 4), f32(4))),
    "where int": (op.where, (boolean(3, 1), i32(3, 4), i32(4))),
    "where int64": (op.where, (boolean(3, 1), i64(3, 4), i64(4))),
    "full": (
        lambda x: (op.full((2, 3), const(1.5, "float32"), "float32"), op.full_like(x, const(2, "float32"))),
        (f32(3),),
    ),
    "zeros ones": (
        lambda x: (op.zeros((2, 3), "int32"), op.ones((2,), "float32"), op.ones_like(x), op.zeros_like(x)),
        (f32(3),),
    ),
    "arange": (lambda x: op.add(x, op.arange(0, 12, 4, "float32")), (f32(3),)),
    "dropout": (lambda x: nn.dropout(x, 0.5)[0], (f32(3, 4),)),
    # Windows.
    "conv1d": (lambda x: nn.conv1d(x, weight(5, 3, 3), 2, (1, 2)), (f32(2, 3, 11),)),
    "conv2d": (lambda x: nn.conv2d(x, weight(6, 4, 3, 3), 1, 1), (f32(1, 4, 8, 9),)),
    "conv2d strided dilated": (
        lambda x: nn.conv2d(x, weight(6, 4, 3, 2), (2, 1), (1, 0, 2, 1), (1, 2)),
        (f32(2, 4, 9, 9),),
    ),
    "conv2d groups": (lambda x: nn.conv2d(x, weight(8, 2, 3, 3), 1, 1, groups=2), (f32(1, 4, 7, 7),)),
    "conv2d depthwise": (lambda x: nn.conv2d(x, weight(4, 1, 3, 3), 2, 1, groups=4), (f32(1, 4, 7, 7),)),
    "conv2d computed weight": (lambda x, w: nn.conv2d(x, w, 1, 1), (f32(1, 4, 7, 7), f32(6, 4, 3, 3))),
    "conv2d groups computed weight": (lambda x, w: nn.conv2d(x, w, groups=2), (f32(1, 4, 7, 7), f32(6, 2, 3, 3))),
    "conv3d": (lambda x: nn.conv3d(x, weight(5, 3, 3, 3, 3), (1, 2, 2), 1), (f32(1, 3, 5, 6, 7),)),
    "conv1d_transpose": (
        lambda x: nn.conv1d_transpose(x, weight(3, 4, 4), 2, (1, 2), output_padding=1),
        (f32(2, 3, 6),),
    ),
    "conv2d_transpose": (lambda x: nn.conv2d_transpose(x, weight(3, 5, 4, 4), (2, 2), (1, 1)), (f32(1, 3, 5, 6),)),
    "conv2d_transpose asymmetric": (
        lambda x: nn.conv2d_transpose(x, weight(4, 3, 3, 3), (2, 1), (0, 1, 2, 1), output_padding=(1, 0), groups=2),
        (f32(2, 4, 5, 6),),
    ),
    "conv2d_transpose dilated": (
        lambda x: nn.conv2d_transpose(x, weight(3, 2, 3, 3), dilation=(2, 2)),
        (f32(1, 3, 5, 5),),
    ),
    "conv3d_transpose": (lambda x: nn.conv3d_transpose(x, weight(2, 3, 2, 2, 2), 2), (f32(1, 2, 3, 3, 3),)),
    "max_pool1d": (lambda x: nn.max_pool1d(x, 3, 2, 1), (f32(2, 3, 9),)),
    "max_pool2d": (lambda x: nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)), (f32(2, 3, 9, 10),)),
    "max_pool2d ceil": (lambda x: nn.max_pool2d(x, (3, 2), (2, 2), (0, 0), ceil_mode=True), (f32(2, 3, 8, 9),)),
    "max_pool2d dilated": (lambda x: nn.max_pool2d(x, (2, 2), (1, 1), (1, 0, 0, 1), (2, 2)), (f32(2, 3, 8, 9),)),
    "max_pool3d": (lambda x: nn.max_pool3d(x, (2, 3, 3), (1, 2, 2), (0, 1, 1)), (f32(1, 2, 4, 7, 7),)),
    "avg_pool1d": (lambda x: nn.avg_pool1d(x, 3, 2, 1), (f32(2, 3, 9),)),
    "avg_pool2d": (lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1)), (f32(2, 3, 9, 10),)),
    "avg_pool2d padding counts": (
        lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 0, 2, 1), count_include_pad=True),
        (f32(2, 3, 9, 10),),
    ),
    "avg_pool2d ceil": (lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), ceil_mode=True), (f32(1, 2, 4, 6),)),
    "avg_pool2d ceil padding counts": (
        lambda x: nn.avg_pool2d(x, (3, 3), (2, 3), (1, 1), ceil_mode=True, count_include_pad=True),
        (f32(1, 2, 4, 6),),
    ),
    "avg_pool3d": (
        lambda x: nn.avg_pool3d(x, (2, 3, 3), (1, 2, 2), (0, 1, 1), count_include_pad=True),
        (f32(1, 2, 4, 7, 7),),
    ),
    "adaptive_avg_pool1d": (lambda x: nn.adaptive_avg_pool1d(x, 3), (f32(1, 2, 9),)),
    "adaptive_avg_pool2d": (
        lambda x: (nn.adaptive_avg_pool2d(x, 1), nn.adaptive_avg_pool2d(x, (2, 4))),
        (f32(1, 2, 6, 8),),
    ),
    "adaptive_avg_pool3d": (lambda x: nn.adaptive_avg_pool3d(x, 1), (f32(1, 2, 3, 4, 5),)),
    # Layers.
    "matmul": (op.matmul, (f32(4, 5), f32(5, 6))),
    "matmul weights": (lambda x: op.add(op.matmul(x, weight(5, 6)), weight(6)), (f32(2, 3, 5),)),
    "matmul batched": (op.matmul, (f32(2, 1, 4, 5), f32(3, 5, 6))),
    "matmul vector": (lambda x, y: (op.matmul(x, y), op.matmul(y, y)), (f32(2, 3, 5), f32(5))),
    "matmul row": (op.matmul, (f32(5), f32(2, 5, 4))),
    "linear": (lambda x: op.linear(x, weight(6, 5), weight(6)), (f32(3, 5),)),
    "einsum": (lambda x, y: op.einsum([x, y], "bij,bkj->bik"), (f32(2, 3, 4), f32(2, 5, 4))),
    "layer_norm": (lambda x: nn.layer_norm(x, weight(6), weight(6, seed=2), -1, 1e-5), (f32(2, 4, 6),)),
    "layer_norm two axes": (lambda x: nn.layer_norm(x, weight(4, 6), weight(4, 6, seed=2), [-2, -1]), (f32(2, 4, 6),)),
    "rms_norm": (lambda x: nn.rms_norm(x, weight(6), -1, 1e-5), (f32(2, 4, 6),)),
    "batch_norm": (
        lambda x: nn.batch_norm(
            x, weight(4), weight(4, seed=2), weight(4, seed=3), op.abs(weight(4, seed=4)), 1, 1e-3, training=False
        )[0],
        (f32(2, 4, 3, 3),),
    ),
    "group_norm": (lambda x: nn.group_norm(x, weight(6), weight(6, seed=2), 3, 1, [2, 3]), (f32(2, 6, 3, 4),)),
    "instance_norm": (lambda x: nn.instance_norm(x, weight(6), weight(6, seed=2), 1, [2, 3]), (f32(2, 6, 3, 4),)),
    "attention": (nn.attention, (f32(2, 4, 3, 8), f32(2, 5, 3, 8), f32(2, 5, 3, 6))),
    "attention bias": (
        lambda q, k, v, b: nn.attention(q, k, v, b, scale=0.3),
        (f32(2, 4, 3, 8), f32(2, 5, 3, 8), f32(2, 5, 3, 8), f32(2, 3, 4, 5)),
    ),
    "pad": (lambda x: nn.pad(x, [0, 0, 1, 2, 3, 0], "constant", 0.5), (f32(2, 3, 4),)),
    "pad reflect": (lambda x: nn.pad(x, [0, 0, 1, 2, 3, 0], "reflect"), (f32(2, 3, 4),)),
    "pad replicate": (lambda x: nn.pad(x, [0, 0, 1, 2, 3, 0], "replicate"), (f32(2, 3, 4),)),
    **{
        f"resize2d linear {mode}": (
            lambda x, mode=mode: op.image.resize2d(x, (7, 9), method="linear", coordinate_transformation_mode=mode),
            (f32(1, 2, 4, 5),),
        )
        for mode in ("half_pixel", "align_corners", "asymmetric")
    },
    **{
        f"resize2d nearest {mode} {rounding}": (
            lambda x, mode=mode, rounding=rounding: op.image.resize2d(
                x, (7, 9), method="nearest_neighbor", coordinate_transformation_mode=mode, rounding_method=rounding
            ),
            (f32(1, 2, 4, 5),),
        )
        for mode, rounding in (
            ("asymmetric", "floor"),
            ("asymmetric", "ceil"),
            ("half_pixel", "round_prefer_floor"),
            ("half_pixel", "round_prefer_ceil"),
            ("align_corners", "floor"),
        )
    },
    # Movement.
    "reshape": (lambda x: (op.reshape(x, (4, 6)), op.reshape(x, (24,)), op.flatten(x)), (f32(2, 3, 4),)),
    "reshape scalar": (lambda x: (op.reshape(x, ()), op.squeeze(x)), (f32(1, 1),)),
    "reshape int64": (lambda x: op.reshape(x, (6,)), (i64(2, 3),)),
    "reshape bool": (lambda x: op.reshape(x, (6,)), (boolean(2, 3),)),
    "reshape bytes": (lambda x: op.reshape(x, (6,)), (((2, 3), "uint8"),)),
    "expand_dims": (lambda x: op.expand_dims(x, [0, -1]), (f32(2, 3),)),
    "expand scalar": (lambda x: op.expand_dims(x, [0]), (f32(),)),
    "squeeze": (lambda x: op.squeeze(x, [1]), (f32(2, 1, 3, 1),)),
    "batch_flatten": (nn.batch_flatten, (f32(2, 3, 4),)),
    "permute_dims": (lambda x: (op.permute_dims(x, [0, -1, 1]), op.permute_dims(x)), (f32(2, 3, 4),)),
    "permute_dims bool": (lambda x: op.permute_dims(x), (boolean(2, 3),)),
    "broadcast_to": (lambda x: op.broadcast_to(x, (4, 2, 3)), (f32(2, 1),)),
    "broadcast_to bool": (lambda x: op.broadcast_to(x, (4, 2, 3)), (boolean(2, 1),)),
    "repeat": (lambda x: (op.repeat(x, 2, 1), op.repeat(x, 3)), (f32(2, 3),)),
    "tile": (lambda x: (op.tile(x, [2, 1, 3]), op.tile(x, [2])), (f32(2, 3),)),
    "flip": (lambda x: op.flip(x, -1), (f32(2, 3, 4),)),
    "strided_slice": (lambda x: op.strided_slice(x, [1, 2], [0, -3], [5, 100], [2, 1]), (f32(2, 6, 5),)),
    "strided_slice backwards": (lambda x: op.strided_slice(x, [1], [4], [0], [-2]), (f32(2, 6, 5),)),
    "strided_slice all backwards": (lambda x: op.strided_slice(x, [0], [5], [-100], [-1]), (i32(6, 2),)),
    "strided_slice int64": (lambda x: op.strided_slice(x, [0], [1], [3]), (i64(6, 2),)),
    "concat": (lambda x, y: op.concat([x, y, x], 1), (f32(2, 3), f32(2, 1))),
    "concat int64": (lambda x, y: op.concat([x, y], -1), (i64(2, 3), i64(2, 1))),
    "stack": (lambda x, y: (op.stack([x, y], 0), op.stack([x, y], -1)), (f32(2, 3), f32(2, 3))),
    "split": (lambda x: [op.split(x, 3, 1)[i] for i in (2, 0, 1)], (f32(2, 6),)),
    "split indices": (lambda x: op.split(x, [1, 4], -1)[1], (f32(2, 6),)),
    "split uneven": (lambda x: op.split(x, 4, 1)[3], (f32(2, 7),)),
    "take": (lambda x: op.take(x, const([[0, 2], [1, 1]], "int64"), 1), (f32(2, 3, 4),)),
    "take rows": (lambda i: op.take(weight(5, 4), op.clip(i, 0, 4), 0), (i64(2, 3),)),
    "take flat": (lambda x: op.take(x, const([5, 0], "int32")), (f32(6),)),
    "take scalar": (lambda x: op.take(x, const(1, "int64"), 1), (f32(2, 3),)),
    "take clip": (lambda x, i: op.take(x, i, 0, mode="clip"), (f32(2, 3), i32(4))),
    "take wrap": (lambda x, i: op.take(x, i, 0, mode="wrap"), (f32(2, 3), i32(4))),
    "take wrap constant": (lambda x: op.take(x, const([-1, 0, 5], "int64"), 1, mode="wrap"), (f32(2, 3),)),
    "take clip constant": (lambda x: op.take(x, const([-1, 0, 5], "int64"), 1, mode="clip"), (f32(2, 3),)),
    "take int64": (lambda x: op.take(x, const([1, 0], "int32"), 0), (i64(2, 3),)),
    "gather_elements": (lambda x: op.gather_elements(x, const([[0, 2, 1]], "int64"), 0), (f32(3, 3),)),
    "gather_nd": (lambda x: op.gather_nd(x, const([[0, 1], [1, 2]], "int64")), (f32(2, 3, 4),)),
    "gather_nd batched": (lambda x: op.gather_nd(x, const([[1], [2]], "int64"), 1), (f32(2, 3, 4),)),
    "scatter_elements": (
        lambda x, u: op.scatter_elements(x, const([[0, 2, 1]], "int64"), u, 0),
        (f32(3, 3), f32(1, 3)),
    ),
    "scatter_elements add": (
        lambda x, u: op.scatter_elements(x, const([[0, 2, 1]], "int64"), u, 0, "add"),
        (f32(3, 3), f32(1, 3)),
    ),
    "scatter_nd": (lambda x, u: op.scatter_nd(x, const([[2], [0]], "int64"), u), (f32(3, 3), f32(2, 3))),
    "tril": (lambda x: (op.tril(x), op.tril(x, -1), op.triu(x, 1)), (f32(2, 4, 5),)),
    "tril bool": (lambda x: op.tril(x), (boolean(4, 4),)),
    "triu int": (lambda x: op.triu(x), (i64(4, 4),)),
    "one_hot": (
        lambda i: op.one_hot(i, tvm.tirx.FloatImm("float32", 2.0), tvm.tirx.FloatImm("float32", -1.0), 2, -1),
        (i64(4),),
    ),
    "one_hot first axis": (
        lambda i: op.one_hot(i, tvm.tirx.IntImm("int32", 3), tvm.tirx.IntImm("int32", 0), 2, 0),
        (i32(4, 2),),
    ),
    # Reductions.
    **{
        f"{name} {axis} {keep}": (
            lambda x, name=name, axis=axis, keep=keep: getattr(op, name)(x, axis, keep),
            (f32(2, 3, 4),),
        )
        for name in ("sum", "mean", "max", "min", "prod", "variance", "std")
        for axis, keep in (([-1], False), ([0, 2], True), (None, False))
    },
    "sum int": (lambda x: (op.sum(x, [1]), op.max(x, [0]), op.min(x)), (i32(3, 4),)),
    "max int64": (lambda x: op.max(x, [0]), (i64(3, 4),)),
    "argmax": (lambda x: (op.argmax(x, 1), op.argmin(x, 0, True), op.argmax(x)), (f32(3, 4),)),
    "argmax ties": (lambda x: (op.argmax(op.sign(x), 1), op.argmin(op.sign(x), 1)), (f32(3, 9),)),
    "cumsum": (lambda x: (op.cumsum(x, 1), op.cumsum(x), op.cumsum(x, 0, exclusive=True)), (f32(3, 4),)),
    "cumsum int": (lambda x: op.cumsum(x, 1), (i32(3, 4),)),
    "topk": (lambda x: [op.topk(x, 3, 1)[i] for i in (0, 1)], (f32(3, 9),)),
    "topk smallest": (lambda x: op.topk(x, 2, 0, "indices", False, "int64"), (f32(5, 3),)),
    "topk ties": (lambda x: op.topk(op.sign(x), 9, 1, "indices"), (f32(3, 40),)),
    "sort": (lambda x: (op.sort(x, 1), op.sort(x, 0, True)), (f32(3, 9),)),
    "argsort": (lambda x: op.argsort(x, 1, True), (f32(3, 9),)),
    "argsort ties": (lambda x: op.argsort(op.sign(x), 1), (f32(3, 40),)),
}

#: float32 sums in another order differ by a few ulps; exact for every other dtype.
RTOL, ATOL = 2e-5, 2e-6


@pytest.mark.parametrize("name", CASES)
def test_converter_agrees_with_tvm(name: str) -> None:
    build, specs = CASES[name]
    module = relax.transform.Normalize()(module_of(build, *specs))
    inputs = random_inputs(specs, *RANGES.get(name, (-2.0, 2.0)))
    onnx.checker.check_model(export_onnx(module["main"]), full_check=True)
    expected = run_tvm(module, inputs)
    bindings = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    assert [unsupported_reason(value) for value in bindings] == [None] * len(bindings)
    engines = ["onnxruntime"]
    if all(unsupported_by_openvino(value) is None for value in bindings):
        engines.append("openvino")
    for engine in engines:
        actual = run_engine(engine, module, inputs)
        assert len(actual) == len(expected)
        for got, want in zip(actual, expected, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape), engine
            np.testing.assert_allclose(got, want, rtol=RTOL, atol=ATOL, err_msg=engine)


def test_every_operator_of_the_table_has_a_case() -> None:
    seen = set()
    for build, specs in CASES.values():
        for block in relax.transform.Normalize()(module_of(build, *specs))["main"].body.blocks:
            seen |= {b.value.op.name for b in block.bindings if isinstance(b.value, relax.Call)}
    assert supported_operators() - seen == {"relax.call_pure_packed"}  # opaque nodes: test_opaque.py
