"""ShuffleNetV2 (Ma et al. 2018) as in torchvision: split channels, depthwise convolutions, shuffled halves."""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

#: Blocks and channels of each stage, whose first block is strided.
_STAGES = ((4, 116), (8, 232), (4, 464))


def shufflenet_v2_x1_0(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ShuffleNetV2 1.0x on (batch, 3, 224, 224): 56 convolutions, 2.3 million parameters, 1000 logits."""
    b = GraphBuilder("shufflenet_v2_x1_0", seed, dtype)
    x = conv(b, b.input("input", (batch, 3, 224, 224)), (3, 24), (3, 3), 2, gain=1.0)
    x = b.op("Relu", batch_norm(b, x, 24))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels, side = 24, 56
    for blocks, after in _STAGES:
        side //= 2
        half = after // 2
        for block in range(blocks):
            if block == 0:
                kept = _depthwise(b, x, channels, 2)
                kept = b.op("Relu", batch_norm(b, conv(b, kept, (channels, half), (1, 1), gain=1.0), half))
                branch = _branch(b, x, (channels, half), 2)
            else:
                kept, taken = b.op_many("Split", 2, x, b.ints(half, half), axis=1)
                branch = _branch(b, taken, (half, half), 1)
            x = _shuffle(b, b.op("Concat", kept, branch, axis=1), (batch, after, side))
        channels = after
    x = b.op("Relu", batch_norm(b, conv(b, x, (channels, 1024), (1, 1)), 1024))
    b.output(classifier(b, x, 1024, 1000), "logits", (batch, 1000))
    return b.finish()


def _branch(b: GraphBuilder, x: str, channels: tuple[int, int], stride: int) -> str:
    """A 1x1, a depthwise 3x3 and another 1x1 convolution; no activation after the depthwise one."""
    before, after = channels
    x = b.op("Relu", batch_norm(b, conv(b, x, (before, after), (1, 1)), after))
    x = _depthwise(b, x, after, stride)
    return b.op("Relu", batch_norm(b, conv(b, x, (after, after), (1, 1), gain=1.0), after))


def _depthwise(b: GraphBuilder, x: str, channels: int, stride: int) -> str:
    return batch_norm(b, conv(b, x, (channels, channels), (3, 3), stride, group=channels), channels)


def _shuffle(b: GraphBuilder, x: str, shape: tuple[int, int, int]) -> str:
    """Interleave the channels of the two halves: (2, channels / 2) transposed."""
    batch, channels, side = shape
    x = b.op("Reshape", x, b.ints(batch, 2, channels // 2, side, side))
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3, 4]), b.ints(batch, channels, side, side))
