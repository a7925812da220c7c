"""DenseNet-121 (Huang et al. 2017) as in torchvision: each layer reads the concatenation of all before it."""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

_BLOCKS = (6, 12, 24, 16)
_GROWTH = 32
_BOTTLENECK = 4 * _GROWTH


def densenet121(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """DenseNet-121 on (batch, 3, 224, 224): 120 convolutions, 8.0 million parameters, 1000 logits."""
    b = GraphBuilder("densenet121", seed, dtype)
    channels = 2 * _GROWTH
    x = conv(b, b.input("input", (batch, 3, 224, 224)), (3, channels), (7, 7), 2, gain=1.0)
    x = b.op("MaxPool", _norm_relu(b, x, channels), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for block, layers in enumerate(_BLOCKS):
        if block > 0:
            x = conv(b, _norm_relu(b, x, channels), (channels, channels // 2), (1, 1))
            x, channels = b.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]), channels // 2
        features = [x]
        for _ in range(layers):
            x = b.op("Concat", *features, axis=1) if len(features) > 1 else features[0]
            y = conv(b, _norm_relu(b, x, channels), (channels, _BOTTLENECK), (1, 1))
            features.append(conv(b, _norm_relu(b, y, _BOTTLENECK), (_BOTTLENECK, _GROWTH), (3, 3)))
            channels += _GROWTH
        x = b.op("Concat", *features, axis=1)
    b.output(classifier(b, _norm_relu(b, x, channels), channels, 1000), "logits", (batch, 1000))
    return b.finish()


def _norm_relu(b: GraphBuilder, x: str, channels: int) -> str:
    return b.op("Relu", batch_norm(b, x, channels))
