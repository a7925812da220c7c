"""Converters of activation functions, elementwise or along an axis, and of dropout."""

from __future__ import annotations

from collage.backends.onnx.export.conversion import FLOAT, Conversion, Converter, axis_of, table
from collage.backends.onnx.export.elementwise import unary
from collage.backends.onnx.export.graph import Value, Values


def _silu(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    return c.emit("Mul", c.value(0), c.emit("Sigmoid", c.value(0)))


def _gelu(approximate: str) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT)
        return c.emit("Gelu", c.value(0), approximate=approximate)

    return convert


def _leaky_relu(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    return c.emit("LeakyRelu", c.value(0), alpha=float(c.attrs.alpha))


def _prelu(c: Conversion) -> Value:
    c.require_dtype(FLOAT, 0, 1)
    data, slope = c.type(0), c.type(1)
    axis = axis_of(c.attrs.axis, data.rank)
    c.require(slope.size in (1, data.shape[axis]), f"a slope of shape {slope.shape}")
    # Of full rank: OpenVINO takes a slope of rank 1 for the channels', whatever axis it broadcasts to.
    aligned = [slope.size if i == axis else 1 for i in range(data.rank)]
    return c.emit("PRelu", c.value(0), c.reshape(c.value(1), aligned))


def _softplus(c: Conversion) -> Value:
    c.require_dtype(FLOAT)
    beta, threshold = float(c.attrs.beta), float(c.attrs.threshold)
    # Above the threshold Relax returns x itself; from 16 on, log(1 + e^x) is x in float32.
    c.require(beta > 0 and threshold >= 16, f"softplus with beta {beta} and threshold {threshold}")
    if beta == 1:
        return c.emit("Softplus", c.value(0))
    scaled = c.emit("Softplus", c.emit("Mul", c.value(0), c.scalar(beta, "float32")))
    return c.emit("Div", scaled, c.scalar(beta, "float32"))


def _softmax(op: str) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT)
        return c.emit(op, c.value(0), axis=axis_of(c.attrs.axis, c.type(0).rank))

    return convert


def _dropout(c: Conversion) -> Values:
    """At inference Relax's dropout passes its operand through, with a mask of ones."""
    c.require_dtype(FLOAT)
    ones = c.emit("Expand", c.scalar(1, "float32"), c.graph.ints(c.type(0).shape))
    return c.value(0), ones


CONVERTERS = table(
    ("relax.nn.relu", unary("Relu")),
    ("relax.nn.selu", unary("Selu")),
    ("relax.nn.silu", _silu),
    ("relax.nn.gelu", _gelu("none")),
    ("relax.nn.gelu_tanh", _gelu("tanh")),
    ("relax.nn.leakyrelu", _leaky_relu),
    ("relax.nn.prelu", _prelu),
    ("relax.nn.softplus", _softplus),
    ("relax.nn.softmax", _softmax("Softmax")),
    ("relax.nn.log_softmax", _softmax("LogSoftmax")),
    ("relax.nn.dropout", _dropout),
)
