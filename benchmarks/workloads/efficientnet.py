"""EfficientNet-B0 (Tan and Le 2019) as in torchvision: inverted residuals with squeeze-and-excitation; the SiLU is
exported as a product with a Sigmoid.
"""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

#: Of each stage: expansion, kernel, stride of the first block, channels, blocks.
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
#: `gain` after a SiLU, and after one whose channels a Sigmoid has about halved: silu(x)² is between x²/4 and x²/2.
_AFTER_SILU = 2.5
_AFTER_EXCITATION = 3.5 * _AFTER_SILU
_BRANCH_SCALE = 0.5


def efficientnet_b0(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """EfficientNet-B0 on (batch, 3, 224, 224): 81 convolutions, 5.3 million parameters, 1000 logits."""
    b = GraphBuilder("efficientnet_b0", seed, dtype)
    x = conv(b, b.input("input", (batch, 3, 224, 224)), (3, 32), (3, 3), 2, gain=1.0)
    x, channels, gain = _silu(b, batch_norm(b, x, 32)), 32, _AFTER_SILU
    for expansion, kernel, stride, after, blocks in _STAGES:
        for block in range(blocks):
            x = _block(b, x, (channels, after), expansion, kernel, stride if block == 0 else 1, gain)
            channels, gain = after, 1.0
    x = _silu(b, batch_norm(b, conv(b, x, (channels, 1280), (1, 1), gain=1.0), 1280))
    b.output(classifier(b, x, 1280, 1000), "logits", (batch, 1000))
    return b.finish()


def _block(
    b: GraphBuilder, x: str, channels: tuple[int, int], expansion: int, kernel: int, stride: int, gain: float
) -> str:
    """Expand 1x1, depthwise, excite, project 1x1 without activation; a shortcut where the shape stays."""
    before, after = channels
    wide, y = before * expansion, x
    if expansion != 1:
        y, gain = _silu(b, batch_norm(b, conv(b, y, (before, wide), (1, 1), gain=gain), wide)), _AFTER_SILU
    y = _silu(b, batch_norm(b, conv(b, y, (wide, wide), (kernel, kernel), stride, group=wide, gain=gain), wide))
    y = _excite(b, y, (wide, before // 4))
    shortcut = stride == 1 and before == after
    y = conv(b, y, (wide, after), (1, 1), gain=_AFTER_EXCITATION)
    y = batch_norm(b, y, after, _BRANCH_SCALE if shortcut else 1.0)
    return b.op("Add", y, x) if shortcut else y


def _excite(b: GraphBuilder, x: str, channels: tuple[int, int]) -> str:
    """Weight each channel by what a bottleneck of two 1x1 convolutions makes of all channels' means."""
    wide, narrow = channels
    y = conv(b, b.op("GlobalAveragePool", x), (wide, narrow), (1, 1), gain=_AFTER_SILU, bias=True)
    y = conv(b, _silu(b, y), (narrow, wide), (1, 1), gain=_AFTER_SILU, bias=True)
    return b.op("Mul", b.op("Sigmoid", y), x)


def _silu(b: GraphBuilder, x: str) -> str:
    return b.op("Mul", x, b.op("Sigmoid", x))
