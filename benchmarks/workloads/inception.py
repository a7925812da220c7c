"""A small network of Inception modules (Szegedy et al. 2015, with normalisations): four branches, concatenated."""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

#: Channels of each module's branches: 1x1; 1x1 before 3x3, 3x3; 1x1 before two 3x3, those; 1x1 after the pooling.
_MODULES = (
    ((16, 16, 24, 8, 16, 8), (24, 24, 32, 8, 16, 16)),
    ((32, 24, 48, 12, 24, 24), (40, 32, 56, 16, 32, 32)),
)


def tiny_inception(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """Four Inception modules on (batch, 3, 32, 32): 29 convolutions, 10 logits."""
    b = GraphBuilder("tiny_inception", seed, dtype)
    x, channels = _conv(b, b.input("input", (batch, 3, 32, 32)), (3, 32), 3, gain=1.0), 32
    for modules in _MODULES:
        x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        for one, before_three, three, before_five, five, pooled in modules:
            branches = [
                _conv(b, x, (channels, one), 1),
                _conv(b, _conv(b, x, (channels, before_three), 1), (before_three, three), 3),
                _conv(b, _conv(b, _conv(b, x, (channels, before_five), 1), (before_five, five), 3), (five, five), 3),
                _conv(
                    b,
                    b.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4),
                    (channels, pooled),
                    1,
                ),
            ]
            x, channels = b.op("Concat", *branches, axis=1), one + three + five + pooled
    b.output(classifier(b, x, channels, 10), "logits", (batch, 10))
    return b.finish()


def _conv(b: GraphBuilder, x: str, channels: tuple[int, int], kernel: int, gain: float = 2.0) -> str:
    """A convolution with its normalisation and ReLU."""
    return b.op("Relu", batch_norm(b, conv(b, x, channels, (kernel, kernel), gain=gain), channels[1]))
