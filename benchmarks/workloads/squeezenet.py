"""SqueezeNet 1.1 (Iandola et al. 2016) as in torchvision: fire modules, convolutions with biases, no normalisations."""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import conv

#: Channels that each fire module squeezes to, and expands to in each of its two halves; None is a pooling.
_FIRES = ((16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))


def squeezenet1_1(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """SqueezeNet 1.1 on (batch, 3, 224, 224): 26 convolutions, 1.2 million parameters, 1000 logits."""
    b = GraphBuilder("squeezenet1_1", seed, dtype)
    x = b.op("Relu", conv(b, b.input("input", (batch, 3, 224, 224)), (3, 64), (3, 3), 2, (0,) * 4, gain=1.0, bias=True))
    x, channels = _pool(b, x), 64
    for fire in _FIRES:
        if fire is None:
            x = _pool(b, x)
            continue
        squeezed, expanded = fire
        x = b.op("Relu", conv(b, x, (channels, squeezed), (1, 1), bias=True))
        halves = [b.op("Relu", conv(b, x, (squeezed, expanded), (k, k), bias=True)) for k in (1, 3)]
        x, channels = b.op("Concat", *halves, axis=1), 2 * expanded
    x = b.op("Relu", conv(b, x, (channels, 1000), (1, 1), bias=True))
    b.output(b.op("Flatten", b.op("GlobalAveragePool", x), axis=1), "logits", (batch, 1000))
    return b.finish()


def _pool(b: GraphBuilder, x: str) -> str:
    return b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0] * 4, ceil_mode=1)
