"""MobileNetV2 (Sandler et al. 2018) as in torchvision: inverted residuals, depthwise convolutions, ReLU6 as Clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

_BRANCH_SCALE = 0.5


@dataclass(frozen=True)
class _Stage:
    """A row of the paper's table 2: `count` blocks with `channels` outputs, the first of them strided."""

    expansion: int
    channels: int
    count: int
    stride: int


_MOBILENET_V2 = (
    _Stage(1, 16, 1, 1),
    _Stage(6, 24, 2, 2),
    _Stage(6, 32, 3, 2),
    _Stage(6, 64, 4, 2),
    _Stage(6, 96, 3, 1),
    _Stage(6, 160, 3, 2),
    _Stage(6, 320, 1, 1),
)
#: Channels times 0.35, rounded to multiples of 8.
_MOBILENET_V2_035 = (
    _Stage(1, 8, 1, 1),
    _Stage(6, 8, 2, 2),
    _Stage(6, 16, 3, 2),
    _Stage(6, 24, 4, 2),
    _Stage(6, 32, 3, 1),
    _Stage(6, 56, 3, 2),
    _Stage(6, 112, 1, 1),
)
_TINY = (_Stage(1, 8, 1, 1), _Stage(4, 12, 2, 2))


def mobilenet_v2(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """MobileNetV2 on (batch, 3, 224, 224): 52 convolutions, 3.5 million parameters, 1000 logits."""
    return _mobilenet("mobilenet_v2", (batch, 3, 224, 224), _MOBILENET_V2, (32, 1280), 1000, seed, dtype)


def mobilenet_v2_035(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """MobileNetV2 of 0.35 times the width on (batch, 3, 96, 96): 52 convolutions, 1.7 million parameters."""
    return _mobilenet("mobilenet_v2_035", (batch, 3, 96, 96), _MOBILENET_V2_035, (16, 1280), 1000, seed, dtype)


def tiny_mobilenet(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """Three inverted residual blocks, one with a shortcut, on (batch, 3, 32, 32): 10 convolutions, 10 logits."""
    return _mobilenet("tiny_mobilenet", (batch, 3, 32, 32), _TINY, (8, 32), 10, seed, dtype)


def _mobilenet(
    name: str,
    shape: Sequence[int],
    stages: Sequence[_Stage],
    ends: tuple[int, int],
    classes: int,
    seed: int,
    dtype: str,
) -> ModelProto:
    """A strided stem of `ends[0]` channels, the stages, a 1x1 convolution to `ends[1]` channels and the classifier."""
    b = GraphBuilder(name, seed, dtype)
    x = b.input("input", shape)
    x = _relu6(b, batch_norm(b, conv(b, x, (shape[1], ends[0]), (3, 3), 2, gain=1.0), ends[0]))
    channels, gain = ends[0], 2.0
    for stage in stages:
        for block in range(stage.count):
            stride = stage.stride if block == 0 else 1
            x = _inverted_residual(b, x, (channels, stage.channels), stage.expansion, stride, gain)
            channels, gain = stage.channels, 1.0
    x = _relu6(b, batch_norm(b, conv(b, x, (channels, ends[1]), (1, 1), gain=gain), ends[1]))
    b.output(classifier(b, x, ends[1], classes), "logits", (shape[0], classes))
    return b.finish()


def _inverted_residual(
    b: GraphBuilder, x: str, channels: tuple[int, int], expansion: int, stride: int, gain: float
) -> str:
    """Expand 1x1, depthwise 3x3, project 1x1 without activation; a shortcut where the shape stays."""
    before, after = channels
    wide = before * expansion
    y = x
    if expansion != 1:
        y = _relu6(b, batch_norm(b, conv(b, y, (before, wide), (1, 1), gain=gain), wide))
    y = _relu6(b, batch_norm(b, conv(b, y, (wide, wide), (3, 3), stride, group=wide), wide))
    shortcut = stride == 1 and before == after
    y = batch_norm(b, conv(b, y, (wide, after), (1, 1)), after, _BRANCH_SCALE if shortcut else 1.0)
    return b.op("Add", x, y) if shortcut else y


def _relu6(b: GraphBuilder, x: str) -> str:
    return b.op("Clip", x, b.constant(0.0), b.constant(6.0))
