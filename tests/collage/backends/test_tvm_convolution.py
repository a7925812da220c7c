"""Convolutions that the native backend makes compute what NumPy computes, tap by tap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm_partitions import check, f

from collage.backends.tvm.convolution import LANES, Shape, flat_geometry

R = relax.op


def convolve(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """Convolution tap by tap, in float64."""
    rank = x.ndim - 2
    pads = [(0, 0), (0, 0), *zip(padding[:rank], padding[rank:], strict=True)]
    x = np.pad(x.astype("float64"), pads)
    out = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(rank)]
    n, o, group_in, group_out = x.shape[0], w.shape[0], w.shape[1], w.shape[0] // groups
    result = np.zeros((n, o, *out))
    for taps in np.ndindex(*w.shape[2:]):
        at = [slice(t * d, t * d + s * (e - 1) + 1, s) for t, d, s, e in zip(taps, dilation, strides, out, strict=True)]
        for g in range(groups):
            data = x[(slice(None), slice(g * group_in, (g + 1) * group_in), *at)]
            weight = w[(slice(g * group_out, (g + 1) * group_out), slice(None), *taps)]
            result[:, g * group_out : (g + 1) * group_out] += np.einsum("nc...,oc->no...", data, weight)
    return result


CONVOLUTIONS = {
    "3x3": ((1, 16, 14, 14), (24, 16, 3, 3), {"padding": (1, 1)}),
    "3x3 of odd sizes": ((1, 5, 13, 11), (7, 5, 3, 3), {"padding": (1, 1)}),
    "3x3 with stride 2": ((1, 16, 15, 15), (16, 16, 3, 3), {"padding": (1, 1), "strides": (2, 2)}),
    "7x7 with stride 2": ((1, 3, 32, 32), (8, 3, 7, 7), {"padding": (3, 3), "strides": (2, 2)}),
    "1x1": ((1, 32, 14, 14), (64, 32, 1, 1), {}),
    "1x1 of 7x7": ((1, 32, 7, 7), (64, 32, 1, 1), {}),
    "1x1 of 1x1": ((1, 32, 1, 1), (64, 32, 1, 1), {}),
    "1x1 with stride 2": ((1, 32, 14, 14), (64, 32, 1, 1), {"strides": (2, 2)}),
    "uneven padding": ((1, 8, 10, 10), (8, 8, 3, 3), {"padding": (0, 1, 2, 1), "strides": (2, 1)}),
    "dilated": ((1, 8, 16, 16), (8, 8, 3, 3), {"padding": (2, 2), "dilation": (2, 2)}),
    "dilated with stride": ((1, 8, 17, 17), (8, 8, 3, 3), {"padding": (2, 2), "dilation": (2, 3), "strides": (2, 2)}),
    "1x7": ((1, 8, 17, 17), (8, 8, 1, 7), {"padding": (0, 3)}),
    "depthwise": ((1, 24, 14, 14), (24, 1, 3, 3), {"padding": (1, 1), "groups": 24}),
    "depthwise with stride 2": ((1, 24, 14, 14), (24, 1, 5, 5), {"padding": (2, 2), "strides": (2, 2), "groups": 24}),
    "depthwise over the whole image": ((1, 512, 7, 7), (512, 1, 7, 7), {"groups": 512}),
    "depthwise to one pixel": (
        (1, 1088, 2, 2),
        (1088, 1, 3, 3),
        {"padding": (1, 1), "strides": (2, 2), "groups": 1088},
    ),
    "grouped to one pixel": ((1, 1024, 2, 2), (1024, 4, 2, 2), {"groups": 256}),
    "depthwise multiplier": ((1, 8, 14, 14), (16, 1, 3, 3), {"padding": (1, 1), "groups": 8}),
    "grouped": ((1, 32, 14, 14), (64, 4, 3, 3), {"padding": (1, 1), "groups": 8}),
    "grouped, wide groups": ((1, 32, 14, 14), (96, 16, 3, 3), {"padding": (1, 1), "groups": 2}),
    "batch of 3": ((3, 8, 9, 9), (16, 8, 3, 3), {"padding": (1, 1)}),
    "large image": ((1, 8, 96, 96), (16, 8, 3, 3), {"padding": (1, 1)}),
    "1d": ((2, 8, 50), (16, 8, 3), {"padding": (1, 1), "strides": (2,)}),
    "3d": ((1, 4, 6, 9, 9), (8, 4, 3, 3, 3), {"padding": (1, 1, 1)}),
    "3d with stride 2": ((1, 4, 6, 10, 10), (8, 4, 3, 3, 3), {"padding": (1, 1, 1), "strides": (2, 2, 2)}),
}
OPERATORS = {3: R.nn.conv1d, 4: R.nn.conv2d, 5: R.nn.conv3d}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution_with_bias_and_relu(name: str) -> None:
    data, weight, options = CONVOLUTIONS[name]
    rank = len(data) - 2
    bias = (1, weight[0], *([1] * rank))
    padding = options.get("padding", (0,) * rank)
    full = {
        "strides": options.get("strides", (1,) * rank),
        "padding": padding if len(padding) == 2 * rank else (*padding, *padding),
        "dilation": options.get("dilation", (1,) * rank),
        "groups": options.get("groups", 1),
    }

    def body(bb: Any, x: Any, w: Any, b: Any) -> Any:
        return R.nn.relu(bb.emit(R.add(bb.emit(OPERATORS[len(data)](x, w, **options)), b)))

    check([f(*data), f(*weight), f(*bias)], body, lambda x, w, b: np.maximum(convolve(x, w, **full) + b, 0))


def test_convolution_alone() -> None:
    check(
        [f(1, 8, 12, 12), f(8, 8, 3, 3)],
        lambda bb, x, w: R.nn.conv2d(x, w),
        lambda x, w: convolve(x, w, (1, 1), (0, 0, 0, 0), (1, 1), 1),
    )


def test_convolution_with_residual() -> None:
    check(
        [f(1, 8, 12, 12), f(8, 8, 3, 3), f(1, 8, 12, 12)],
        lambda bb, x, w, r: R.nn.relu(bb.emit(R.add(bb.emit(R.nn.conv2d(x, w, padding=(1, 1))), r))),
        lambda x, w, r: np.maximum(convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1), 1) + r, 0),
    )


def test_activation_before_convolution() -> None:
    check(
        [f(1, 8, 12, 12), f(8, 8, 3, 3)],
        lambda bb, x, w: R.nn.conv2d(bb.emit(R.nn.relu(x)), w, padding=(1, 1)),
        lambda x, w: convolve(np.maximum(x, 0), w, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    )


def test_convolution_in_float64() -> None:
    specs = [((1, 4, 10, 10), "float64"), ((8, 4, 3, 3), "float64")]
    check(
        specs,
        lambda bb, x, w: R.nn.conv2d(x, w, padding=(1, 1)),
        lambda x, w: convolve(x, w, (1, 1), (1, 1, 1, 1), (1, 1), 1),
        rtol=1e-10,
    )


TRANSPOSED = {
    "doubling": ((1, 12, 5, 5), (12, 8, 4, 4), {"strides": (2, 2), "padding": (1, 1)}),
    "from one pixel": ((1, 12, 1, 1), (12, 8, 4, 4), {}),
    "odd kernel": ((1, 6, 7, 7), (6, 5, 3, 3), {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
    "uneven": ((2, 6, 5, 7), (6, 4, 5, 3), {"strides": (3, 2), "padding": (1, 0)}),
    "kernel smaller than stride": ((1, 4, 5, 5), (4, 4, 2, 2), {"strides": (3, 3)}),
    "wide": ((1, 16, 16, 16), (16, 24, 4, 4), {"strides": (2, 2), "padding": (1, 1)}),
    # Tiles of 14 rows, of which 4 are an output channel; 4 x 7 x 17 x 4 is 14 x 136 by chance.
    "channels over several tiles": ((1, 64, 68, 68), (64, 14, 2, 2), {"strides": (2, 2)}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposed_convolution(name: str) -> None:
    data, weight, options = TRANSPOSED[name]
    strides, padding = options.get("strides", (1, 1)), options.get("padding", (0, 0))
    extra = options.get("output_padding", (0, 0))

    def reference(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        (n, _, h, width), (_, o, kh, kw) = x.shape, w.shape
        full = np.zeros((n, o, (h - 1) * strides[0] + kh + extra[0], (width - 1) * strides[1] + kw + extra[1]))
        for i, j in np.ndindex(h, width):
            at = full[:, :, i * strides[0] : i * strides[0] + kh, j * strides[1] : j * strides[1] + kw]
            at += np.einsum("nc,cokl->nokl", x[:, :, i, j], w)
        return full[:, :, padding[0] : full.shape[2] - padding[0], padding[1] : full.shape[3] - padding[1]]

    check([f(*data), f(*weight)], lambda bb, x, w: R.nn.conv2d_transpose(x, w, **options), reference)


@pytest.mark.parametrize("name", ["3x3", "depthwise", "grouped", "1x1", "3d with stride 2"])
def test_geometry_is_whole_vectors(name: str) -> None:
    data, weight, options = CONVOLUTIONS[name]
    rank = len(data) - 2
    groups = options.get("groups", 1)
    lead = (1,) * (3 - rank)
    shape = Shape(
        batch=data[0],
        groups=groups,
        group_in=weight[1],
        group_out=weight[0] // groups,
        image=(*lead, *data[2:]),
        kernel=(*lead, *weight[2:]),
        strides=(*lead, *options.get("strides", (1,) * rank)),
        before=(*(0,) * (3 - rank), *options.get("padding", (0,) * rank)),
        after=(*(0,) * (3 - rank), *options.get("padding", (0,) * rank)),
        dilation=(1, 1, 1),
    )
    geometry = flat_geometry(shape, 4)
    assert geometry.extent % LANES == 0
    assert shape.out[1] % geometry.rows == 0
    assert geometry.stride >= shape.out[2] + shape.reach[2]
    assert geometry.padded_rows >= geometry.rows
