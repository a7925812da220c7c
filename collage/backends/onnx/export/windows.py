"""Converters of operators that slide a window: convolutions and pooling in one, two and three dimensions."""

from __future__ import annotations

import numpy as np

from collage.backends.onnx.export.conversion import FLOAT, Conversion, Converter, table
from collage.backends.onnx.export.graph import Value

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def check_out_dtype(c: Conversion) -> None:
    """Refuse a product accumulated in another dtype than its operands have."""
    c.require(
        c.attrs.out_dtype in (None, "") or str(c.attrs.out_dtype) == c.type(0).dtype, f"out_dtype {c.attrs.out_dtype}"
    )


def _convolution(dims: int) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT, 0, 1)
        check_out_dtype(c)
        data, kernel = "NC" + _SPATIAL[dims], "OI" + _SPATIAL[dims]
        c.require(c.attrs.data_layout == data and c.attrs.out_layout == data, f"layout {c.attrs.data_layout}")
        c.require(c.attrs.kernel_layout == kernel, f"kernel layout {c.attrs.kernel_layout}")
        return c.emit("Conv", c.value(0), c.value(1), **_window(c, c.type(1).shape[2:]), group=int(c.attrs.groups))

    return convert


def _transposed_convolution(dims: int) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT, 0, 1)
        check_out_dtype(c)
        data, kernel = "NC" + _SPATIAL[dims], "IO" + _SPATIAL[dims]
        c.require(c.attrs.data_layout == data and c.attrs.out_layout == data, f"layout {c.attrs.data_layout}")
        c.require(c.attrs.kernel_layout == kernel, f"kernel layout {c.attrs.kernel_layout}")
        window = _window(c, c.type(1).shape[2:])
        extra = [int(p) for p in c.attrs.output_padding]
        return c.emit(
            "ConvTranspose", c.value(0), c.value(1), **window, group=int(c.attrs.groups), output_padding=extra
        )

    return convert


def _window(c: Conversion, kernel: tuple[int, ...]) -> dict[str, list[int]]:
    """Attributes that convolutions and pooling share. Relax orders paddings as ONNX does: all begins, then all ends."""
    return {
        "kernel_shape": list(kernel),
        "strides": [int(s) for s in c.attrs.strides],
        "pads": [int(p) for p in c.attrs.padding],
        "dilations": [int(d) for d in c.attrs.dilation],
    }


def _pool(dims: int, op: str) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT)
        layout = "NC" + _SPATIAL[dims]
        c.require(c.attrs.layout == layout and c.attrs.out_layout == layout, f"layout {c.attrs.layout}")
        window = _window(c, tuple(int(k) for k in c.attrs.pool_size))
        overhang = _cover_ceil_mode(c, window, dims)
        if op == "MaxPool":
            return c.emit(op, c.value(0), **window)
        include = bool(c.attrs.count_include_pad)
        pooled = c.emit(op, c.value(0), **window, count_include_pad=int(include))
        if not (include and any(overhang)):
            return pooled
        # The declared padding counts in the mean, the overhang of ceil mode does not.
        return c.emit("Mul", pooled, c.graph.constant(_overhang_correction(c, window, overhang, dims)))

    return convert


def _cover_ceil_mode(c: Conversion, window: dict[str, list[int]], dims: int) -> list[int]:
    """Extend the end pads so that a floor-mode window gives the result's shape; how far each axis was extended.

    Engines disagree on ceil mode in corner cases; with explicit pads there are none.
    """
    overhang = []
    for axis in range(dims):
        extent = c.type(0).shape[2 + axis]
        reach = (window["kernel_shape"][axis] - 1) * window["dilations"][axis] + 1
        end = dims + axis
        needed = (c.result.shape[2 + axis] - 1) * window["strides"][axis] + reach - extent - window["pads"][axis]
        overhang.append(max(0, needed - window["pads"][end]))
        window["pads"][end] += overhang[-1]
        start_of_last = (c.result.shape[2 + axis] - 1) * window["strides"][axis] - window["pads"][axis]
        c.require(start_of_last < extent, "a pooling window that lies in the padding only")
        wide = max(window["pads"][axis], window["pads"][end]) >= window["kernel_shape"][axis]
        c.require(not wide, "padding as wide as the pooling window")
    c.require(not any(overhang) or bool(c.attrs.ceil_mode), "an inconsistent output shape")
    return overhang


def _overhang_correction(c: Conversion, window: dict[str, list[int]], overhang: list[int], dims: int) -> np.ndarray:
    """Window size over the number of positions that count, per output position: float32, broadcast over N and C."""
    factor = np.ones((1, 1), dtype=np.float32)
    for axis in range(dims):
        begin, end = window["pads"][axis], window["pads"][dims + axis]
        limit = c.type(0).shape[2 + axis] + begin + end - overhang[axis]
        size, stride, dilation = (window[key][axis] for key in ("kernel_shape", "strides", "dilations"))
        starts = np.arange(c.result.shape[2 + axis]) * stride
        counted = ((starts[:, None] + np.arange(size) * dilation) < limit).sum(axis=1)
        factor = factor[..., None] * (size / counted).astype(np.float32)
    return factor


def _adaptive_average(dims: int) -> Converter:
    def convert(c: Conversion) -> Value:
        c.require_dtype(FLOAT)
        layout = "NC" + _SPATIAL[dims]
        c.require(c.attrs.layout == layout and c.attrs.out_layout == layout, f"layout {c.attrs.layout}")
        extents, wanted = c.type(0).shape[2:], c.result.shape[2:]
        if set(wanted) == {1}:
            return c.emit("GlobalAveragePool", c.value(0))
        c.require(all(e % w == 0 for e, w in zip(extents, wanted, strict=True)), "windows of unequal size")
        window = [e // w for e, w in zip(extents, wanted, strict=True)]
        return c.emit("AveragePool", c.value(0), kernel_shape=window, strides=window)

    return convert


CONVERTERS = table(
    *((f"relax.nn.conv{d}d", _convolution(d)) for d in _SPATIAL),
    *((f"relax.nn.conv{d}d_transpose", _transposed_convolution(d)) for d in _SPATIAL),
    *((f"relax.nn.max_pool{d}d", _pool(d, "MaxPool")) for d in _SPATIAL),
    *((f"relax.nn.avg_pool{d}d", _pool(d, "AveragePool")) for d in _SPATIAL),
    *((f"relax.nn.adaptive_avg_pool{d}d", _adaptive_average(d)) for d in _SPATIAL),
)
