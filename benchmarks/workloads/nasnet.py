"""NASNet-A mobile, 4 @ 1056 (Zoph et al. 2018), as in Keras and TF-slim: 356 convolutions on 224x224.

A cell combines its input with the output of the cell before ("previous"), first adjusted to the same size and width.
Separable convolutions are applied twice, each after a ReLU. Keras pads a strided window of an even image by a pixel
less at its beginning; the pads here are those.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto

from benchmarks.workloads.builder import GraphBuilder
from benchmarks.workloads.layers import batch_norm, classifier, conv

_EPSILON = 1e-3
#: Each cell adds up several maps; these scales of the normalisations make up for that.
_BRANCH_SCALE = 0.5
_PROJECTION_SCALE = 0.75
_WIDTH = 1056 // 24
_STEM = 32
_REPEATS = 4


@dataclass(frozen=True)
class _Map:
    """A feature map: its value, channels and side in pixels."""

    value: str
    channels: int
    side: int


def nasnet_a_mobile(batch: int = 1, seed: int = 0, dtype: str = "float32") -> ModelProto:
    """NASNet-A mobile on (batch, 3, 224, 224): 356 convolutions, 5.3 million parameters, 1000 logits."""
    b = GraphBuilder("nasnet_a_mobile", seed, dtype)
    x = conv(b, b.input("input", (batch, 3, 224, 224)), (3, _STEM), (3, 3), 2, pads=(0, 0, 0, 0), gain=1.0)
    before = now = _Map(batch_norm(b, x, _STEM, epsilon=_EPSILON), _STEM, 111)
    for width in (_WIDTH // 4, _WIDTH // 2):
        before, now = now, _reduction_cell(b, now, before, width)
    for width in (_WIDTH, _WIDTH * 2, _WIDTH * 4):
        if width > _WIDTH:
            before, now = now, _reduction_cell(b, now, before, width)
        for _ in range(_REPEATS):
            before, now = now, _normal_cell(b, now, before, width)
    b.output(classifier(b, b.op("Relu", now.value), now.channels, 1000), "logits", (batch, 1000))
    return b.finish()


def _normal_cell(b: GraphBuilder, now: _Map, previous: _Map, width: int) -> _Map:
    """Five sums of separable convolutions and average pools, concatenated with the adjusted previous map."""
    p = _adjust(b, previous, now, width)
    h = _project(b, now, width)
    sums = (
        b.op("Add", _separable(b, h, width, 5), _separable(b, p, width, 3)),
        b.op("Add", _separable(b, p, width, 5), _separable(b, p, width, 3)),
        b.op("Add", _average_pool(b, h.value), p.value),
        b.op("Add", _average_pool(b, p.value), _average_pool(b, p.value)),
        b.op("Add", _separable(b, h, width, 3), h.value),
    )
    return _Map(b.op("Concat", p.value, *sums, axis=1), 6 * width, now.side)


def _reduction_cell(b: GraphBuilder, now: _Map, previous: _Map, width: int) -> _Map:
    """Halves the side: strided separable convolutions and pools of the zero-padded map, combined pairwise."""
    p = _adjust(b, previous, now, width)
    h = _project(b, now, width)
    begin, end = _strided_pads(now.side, 3)
    padded = b.op("Pad", h.value, b.ints(0, 0, begin, begin, 0, 0, end, end), b.constant(0.0))
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 0, 0]}
    first = _Map(b.op("Add", _separable(b, h, width, 5, 2), _separable(b, p, width, 7, 2)), width, (now.side + 1) // 2)
    second = b.op("Add", b.op("MaxPool", padded, **window), _separable(b, p, width, 7, 2))
    third = b.op("Add", b.op("AveragePool", padded, **window), _separable(b, p, width, 5, 2))
    fourth = b.op("Add", second, _average_pool(b, first.value))
    fifth = b.op("Add", _separable(b, first, width, 3), b.op("MaxPool", padded, **window))
    return _Map(b.op("Concat", second, third, fourth, fifth, axis=1), 4 * width, first.side)


def _adjust(b: GraphBuilder, previous: _Map, now: _Map, width: int) -> _Map:
    """`previous` at the side of `now` with `width` channels; as it is in the first cell, where both are one map.

    A side twice as large is reduced by two 1x1 paths, one over the even pixels and one over the odd, by a shift.
    """
    if previous is now:
        return now
    if previous.side == now.side:
        return _project(b, previous, width)
    x = b.op("Relu", previous.value)
    padded = b.op("Pad", x, b.ints(0, 0, 0, 0, 0, 0, 1, 1), b.constant(0.0))
    shifted = b.op("Slice", padded, b.ints(1, 1), b.ints(previous.side + 1, previous.side + 1), b.ints(2, 3))
    paths = []
    for path in (x, shifted):
        pixels = b.op("AveragePool", path, kernel_shape=[1, 1], strides=[2, 2], pads=[0, 0, 0, 0])
        paths.append(conv(b, pixels, (previous.channels, width // 2), (1, 1)))
    return _Map(batch_norm(b, b.op("Concat", *paths, axis=1), width, epsilon=_EPSILON), width, now.side)


def _project(b: GraphBuilder, x: _Map, width: int) -> _Map:
    """ReLU, 1x1 convolution to `width` channels and normalisation."""
    y = conv(b, b.op("Relu", x.value), (x.channels, width), (1, 1))
    return _Map(batch_norm(b, y, width, _PROJECTION_SCALE, _EPSILON), width, x.side)


def _separable(b: GraphBuilder, x: _Map, width: int, kernel: int, stride: int = 1) -> str:
    """ReLU, depthwise and 1x1 convolution, normalisation, and all of it once more at stride 1."""
    around = (kernel // 2, kernel // 2)
    begin, end = _strided_pads(x.side, kernel) if stride == 2 else around
    y = _separable_once(b, x.value, (x.channels, width), (kernel, stride), (begin, begin, end, end), 1.0)
    return _separable_once(b, y, (width, width), (kernel, 1), around * 2, _BRANCH_SCALE)


def _separable_once(
    b: GraphBuilder,
    x: str,
    channels: tuple[int, int],
    kernel_and_stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    scale: float,
) -> str:
    kernel, stride = kernel_and_stride
    x = conv(b, b.op("Relu", x), (channels[0], channels[0]), (kernel, kernel), stride, pads, group=channels[0])
    return batch_norm(b, conv(b, x, channels, (1, 1), gain=1.0), channels[1], scale, _EPSILON)


def _average_pool(b: GraphBuilder, x: str) -> str:
    """3x3 at stride 1; like TensorFlow's, it averages over the pixels inside the image alone."""
    return b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=0)


def _strided_pads(side: int, kernel: int) -> tuple[int, int]:
    """Keras's pads before and after for stride 2: the one before is a pixel less when the side is even."""
    return kernel // 2 - (1 - side % 2), kernel // 2
