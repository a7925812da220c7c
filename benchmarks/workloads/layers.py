"""Layers shared by the workloads: convolutions, normalisations, linear maps; each a node or two with its weights.

`gain` is the ratio of the output's variance to the input's mean square: 2 after a ReLU (He et al. 2015), which halves
the mean square of a centred input, 1 after a linear layer or a normalisation (Glorot and Bengio 2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

from benchmarks.workloads.builder import GraphBuilder


def conv(
    b: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    kernel: Sequence[int],
    stride: int | Sequence[int] = 1,
    pads: Sequence[int] | None = None,
    group: int = 1,
    gain: float = 2.0,
    bias: bool = False,
) -> str:
    """A convolution from `channels[0]` to `channels[1]` channels over `len(kernel)` spatial dimensions.

    `pads` are ONNX's (all begins, then all ends); None keeps the size at stride 1.
    """
    fan_in = channels[0] // group * prod(kernel)
    weight = b.normal((channels[1], channels[0] // group, *kernel), sqrt(gain / fan_in))
    return b.op(
        "Conv",
        x,
        weight,
        *([b.normal((channels[1],), 0.02)] if bias else []),
        kernel_shape=list(kernel),
        strides=[stride] * len(kernel) if isinstance(stride, int) else list(stride),
        pads=list(pads) if pads is not None else [k // 2 for k in kernel] * 2,
        dilations=[1] * len(kernel),
        group=group,
    )


def conv_transpose(
    b: GraphBuilder, x: str, channels: tuple[int, int], kernel: int, stride: int, pad: int, gain: float = 2.0
) -> str:
    """A transposed 2-D convolution without bias, with (kernel / stride)² taps per channel."""
    fan_in = channels[0] * (kernel // stride) ** 2
    return b.op(
        "ConvTranspose",
        x,
        b.normal((*channels, kernel, kernel), sqrt(gain / fan_in)),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
        dilations=[1, 1],
        group=1,
    )


def batch_norm(b: GraphBuilder, x: str, channels: int, scale: float = 1.0, epsilon: float = 1e-5) -> str:
    """Batch normalisation in inference mode, with statistics near (0, 1) and a learnt scale near `scale`.

    A residual network keeps its variance through the depth when the last normalisation of each branch has a scale well
    below 1.
    """
    gamma = b.uniform((channels,), 0.8 * scale, 1.2 * scale)
    beta = b.normal((channels,), 0.1)
    mean = b.normal((channels,), 0.1)
    variance = b.uniform((channels,), 0.8, 1.2)
    return b.op("BatchNormalization", x, gamma, beta, mean, variance, epsilon=epsilon)


def layer_norm(b: GraphBuilder, x: str, width: int, epsilon: float) -> str:
    """Layer normalisation over the last axis, with a learnt scale near 1 and shift near 0."""
    return b.op("LayerNormalization", x, b.normal((width,), 0.1, mean=1.0), b.normal((width,), 0.1), epsilon=epsilon)


def linear(b: GraphBuilder, x: str, widths: tuple[int, int], gain: float = 1.0) -> str:
    """A linear map of the last axis of a tensor of rank 3: MatMul, then Add of the bias, as PyTorch exports it."""
    product = b.op("MatMul", x, b.normal(widths, sqrt(gain / widths[0])))
    return b.op("Add", product, b.normal((widths[1],), 0.02))


def dense(b: GraphBuilder, x: str, widths: tuple[int, int], gain: float = 1.0, transposed: bool = True) -> str:
    """A linear map of a matrix: Gemm, the weight stored (out, in) as by PyTorch's Linear, or (in, out) as by GPT-2."""
    weight = b.normal(widths[::-1] if transposed else widths, sqrt(gain / widths[0]))
    return b.op("Gemm", x, weight, b.normal((widths[1],), 0.02), transB=int(transposed))


def classifier(b: GraphBuilder, x: str, channels: int, classes: int) -> str:
    """Global average pooling and a linear map to `classes` logits."""
    return dense(b, b.op("Flatten", b.op("GlobalAveragePool", x), axis=1), (channels, classes))
