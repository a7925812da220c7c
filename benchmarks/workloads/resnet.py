"""ResNets: ResNet-50, ResNeXt-50 32x4d and a three-dimensional ResNet-50 of bottleneck blocks, ResNet-18 of basic ones.

He et al. 2016 in torchvision's form (the stride sits in the 3x3 convolution); Xie et al. 2017; Hara et al. 2018
(kernels of 3 or 7 in time as in space, the stem strided in space alone, 400 classes of Kinetics).
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

_EXPANSION = 4
_BRANCH_SCALE = 0.4


def resnet50(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ResNet-50 on (batch, 3, 224, 224): 53 convolutions, 25.6 million parameters, 1000 logits."""
    return _resnet("resnet50", (batch, 3, 224, 224), (3, 4, 6, 3), seed, dtype)


def resnext50_32x4d(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ResNeXt-50 32x4d on (batch, 3, 224, 224): 3x3 convolutions in 32 groups; 25.0 million parameters."""
    return _resnet("resnext50_32x4d", (batch, 3, 224, 224), (3, 4, 6, 3), seed, dtype, groups=32, group_width=4)


def resnet50_3d(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ResNet-50-3D on clips of (batch, 3, 16, 112, 112): 53 convolutions, 47.0 million parameters, 400 logits."""
    return _resnet("resnet50_3d", (batch, 3, 16, 112, 112), (3, 4, 6, 3), seed, dtype, classes=400)


def resnet18(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """ResNet-18 on (batch, 3, 224, 224): 20 convolutions, 11.7 million parameters, 1000 logits."""
    return _resnet("resnet18", (batch, 3, 224, 224), (2, 2, 2, 2), seed, dtype, basic=True)


def tiny_resnet(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """Three bottleneck blocks, two with a projection, on (batch, 3, 32, 32): 12 convolutions, 10 logits."""
    return _resnet("tiny_resnet", (batch, 3, 32, 32), (1, 2), seed, dtype, stem=16, classes=10)


def _resnet(
    name: str,
    shape: Sequence[int],
    blocks: Sequence[int],
    seed: int,
    dtype: str,
    stem: int = 64,
    groups: int = 1,
    group_width: int = 64,
    classes: int = 1000,
    basic: bool = False,
) -> ModelProto:
    """A stem of `stem` channels, then stages of `blocks` bottlenecks, or basic blocks, each stage twice as wide as the
    one before; around each block a shortcut, which is projected where the shape changes.
    """
    b = GraphBuilder(name, seed, dtype)
    rank = len(shape) - 2
    x = b.input("input", shape)
    time_stride = (1,) * (rank - 2)
    x = conv(b, x, (shape[1], stem), (7,) * rank, stride=(*time_stride, 2, 2), gain=1.0)
    x = b.op("Relu", batch_norm(b, x, stem))
    x = b.op("MaxPool", x, kernel_shape=[3] * rank, strides=[2] * rank, pads=[1] * 2 * rank)
    channels = stem
    for stage, count in enumerate(blocks):
        planes = stem << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            width, after = planes * group_width // 64 * groups, planes if basic else planes * _EXPANSION
            if basic:
                branch = _basic(b, x, (channels, after), stride, rank)
            else:
                branch = _bottleneck(b, x, (channels, width, after), stride, groups, rank)
            if stride != 1 or channels != after:
                x = batch_norm(b, conv(b, x, (channels, after), (1,) * rank, stride, gain=1.0), after)
            x, channels = b.op("Relu", b.op("Add", branch, x)), after
    b.output(classifier(b, x, channels, classes), "logits", (shape[0], classes))
    return b.finish()


def _bottleneck(b: GraphBuilder, x: str, channels: tuple[int, int, int], stride: int, groups: int, rank: int) -> str:
    """1x1, 3x3 and 1x1 convolutions."""
    before, width, after = channels
    point, cube = (1,) * rank, (3,) * rank
    y = b.op("Relu", batch_norm(b, conv(b, x, (before, width), point), width))
    y = b.op("Relu", batch_norm(b, conv(b, y, (width, width), cube, stride, group=groups), width))
    return batch_norm(b, conv(b, y, (width, after), point), after, _BRANCH_SCALE)


def _basic(b: GraphBuilder, x: str, channels: tuple[int, int], stride: int, rank: int) -> str:
    """Two 3x3 convolutions."""
    before, after = channels
    cube = (3,) * rank
    y = b.op("Relu", batch_norm(b, conv(b, x, (before, after), cube, stride), after))
    return batch_norm(b, conv(b, y, (after, after), cube), after, _BRANCH_SCALE)
