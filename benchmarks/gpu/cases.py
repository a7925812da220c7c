"""Small networks with the operators of the large ones, for first contact with a device (`benchmarks.gpu.numerics`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv, conv_transpose, dense, layer_norm, linear


def product(dtype: str) -> ModelProto:
    """A linear map with GELU, and one back with a residual, on 128 rows of 768."""
    b = GraphBuilder("product", 0, dtype)
    x = b.input("x", (1, 128, 768))
    wide = linear(b, x, (768, 3072))
    erf = b.op("Erf", b.op("Div", wide, b.constant(2.0**0.5)))
    gelu = b.op("Mul", b.op("Mul", wide, b.op("Add", erf, b.constant(1.0))), b.constant(0.5))
    b.output(b.op("Add", linear(b, gelu, (3072, 768), 2.0), x), "y", (1, 128, 768))
    return b.finish()


def odd_product(dtype: str) -> ModelProto:
    """Extents that no tile divides, relu and bias."""
    b = GraphBuilder("odd_product", 0, dtype)
    x = b.op("Relu", dense(b, b.input("x", (3, 77)), (77, 129)))
    b.output(dense(b, x, (129, 5), transposed=False), "y", (3, 5))
    return b.finish()


def attention(dtype: str) -> ModelProto:
    """Queries, keys and values of 12 heads: two batched products, a mask, softmax, transpositions."""
    b = GraphBuilder("attention", 0, dtype)
    x, mask = b.input("x", (2, 64, 768)), b.input("mask", (2, 1, 1, 64))
    parts = [b.op("Reshape", linear(b, x, (768, 768)), b.ints(2, 64, 12, 64)) for _ in range(3)]
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    query, key, value = (b.op("Transpose", part, perm=perm) for part, perm in zip(parts, orders, strict=True))
    scores = b.op("Add", b.op("Mul", b.op("MatMul", query, key), b.constant(0.125)), mask)
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    b.output(layer_norm(b, b.op("Reshape", mixed, b.ints(2, 64, 768)), 768, 1e-12), "y", (2, 64, 768))
    return b.finish()


def bottleneck(dtype: str, group: int = 1) -> ModelProto:
    """1x1, 3x3 and 1x1 convolutions with biases, relu, and a shortcut, on 56x56."""
    b = GraphBuilder("bottleneck", 0, dtype)
    x = b.input("x", (1, 256, 56, 56))
    y = b.op("Relu", batch_norm(b, conv(b, x, (256, 64), (1, 1)), 64))
    y = b.op("Relu", batch_norm(b, conv(b, y, (64, 64), (3, 3), group=group), 64))
    y = batch_norm(b, conv(b, y, (64, 256), (1, 1)), 256)
    b.output(b.op("Relu", b.op("Add", y, x)), "y", (1, 256, 56, 56))
    return b.finish()


def stem(dtype: str) -> ModelProto:
    """A strided 7x7 convolution of an image of three channels, both pools, the classifier, on two images."""
    b = GraphBuilder("stem", 0, dtype)
    x = b.op("Relu", batch_norm(b, conv(b, b.input("x", (2, 3, 65, 65)), (3, 24), (7, 7), 2), 24))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=0)
    b.output(classifier(b, x, 24, 10), "y", (2, 10))
    return b.finish()


def separable(dtype: str) -> ModelProto:
    """Depthwise 5x5 with padding on one side, 1x1, joined with the shortcut."""
    b = GraphBuilder("separable", 0, dtype)
    x = b.input("x", (1, 44, 28, 28))
    y = conv(b, b.op("Relu", x), (44, 44), (5, 5), 1, (1, 1, 3, 3), group=44)
    y = batch_norm(b, conv(b, y, (44, 44), (1, 1)), 44)
    b.output(b.op("Concat", y, x, axis=1), "y", (1, 88, 28, 28))
    return b.finish()


def volume(dtype: str) -> ModelProto:
    """A 3-D convolution, strided, with bias and relu."""
    b = GraphBuilder("volume", 0, dtype)
    x = conv(b, b.input("x", (1, 16, 8, 28, 28)), (16, 32), (3, 3, 3), 2)
    b.output(b.op("Relu", batch_norm(b, x, 32)), "y", (1, 32, 4, 14, 14))
    return b.finish()


def upsampling(dtype: str) -> ModelProto:
    """Two transposed convolutions, relu and tanh."""
    b = GraphBuilder("upsampling", 0, dtype)
    x = conv_transpose(b, b.input("x", (1, 64, 8, 8)), (64, 32), 4, 2, 1)
    x = conv_transpose(b, b.op("Relu", batch_norm(b, x, 32)), (32, 3), 4, 2, 1)
    b.output(b.op("Tanh", x), "y", (1, 3, 32, 32))
    return b.finish()


CASES: Mapping[str, Callable[[str], ModelProto]] = MappingProxyType(
    {
        "product": product,
        "odd_product": odd_product,
        "attention": attention,
        "bottleneck": bottleneck,
        "grouped": lambda dtype: bottleneck(dtype, 32),
        "stem": stem,
        "separable": separable,
        "volume": volume,
        "upsampling": upsampling,
    }
)
