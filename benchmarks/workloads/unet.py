"""U-Net (Ronneberger et al. 2015) in the form that is in use: padded convolutions, batch normalisation."""

from __future__ import annotations

from itertools import pairwise

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, conv, conv_transpose

_WIDTHS = (64, 128, 256, 512, 1024)


def unet(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """U-Net from (batch, 3, 128, 128) to a mask (batch, 1, 128, 128): 19 convolutions, 31.0 million parameters."""
    b = GraphBuilder("unet", seed, dtype)
    x = _double(b, b.input("input", (batch, 3, 128, 128)), 3, _WIDTHS[0])
    skipped = []
    for before, after in pairwise(_WIDTHS):
        skipped.append(x)
        x = _double(b, b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), before, after)
    for after, before, skip in zip(_WIDTHS[-2::-1], _WIDTHS[:0:-1], reversed(skipped), strict=True):
        x = conv_transpose(b, x, (before, after), 2, 2, 0, gain=1.0)
        x = _double(b, b.op("Concat", skip, x, axis=1), before, after)
    b.output(b.op("Sigmoid", conv(b, x, (_WIDTHS[0], 1), (1, 1), gain=1.0)), "mask", (batch, 1, 128, 128))
    return b.finish()


def _double(b: GraphBuilder, x: str, before: int, after: int) -> str:
    """Two 3x3 convolutions, each with its normalisation and ReLU."""
    for channels in (before, after):
        x = b.op("Relu", batch_norm(b, conv(b, x, (channels, after), (3, 3)), after))
    return x
