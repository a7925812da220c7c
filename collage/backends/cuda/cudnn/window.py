"""Pooling: the greatest or the mean element of a window; the mean over all of an image is the case of one window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collage.backends.library.convolution import SPATIAL, window
from collage.backends.library.problem import (
    Binding,
    Problem,
    Unsupported,
    arranged,
    dtype_of,
    operand,
    planar,
    shape_of,
)
from collage.backends.library.view import View, compact

MAXIMUM = {f"relax.nn.max_pool{d}d": d for d in SPATIAL}
AVERAGE = {f"relax.nn.avg_pool{d}d": d for d in SPATIAL}
ADAPTIVE = {f"relax.nn.adaptive_avg_pool{d}d": d for d in SPATIAL}
MEAN = "relax.mean"


def read_pool(bindings: Sequence[Binding]) -> Problem:
    """The problem of one pooling operator.

    Raises
    ------
    Unsupported
        A dilated window, a mean whose divisor cuDNN counts otherwise, windows of unequal size.
    """
    if len(bindings) != 1:
        raise Unsupported("pooling has no epilogue")
    (pool,) = bindings
    if pool.op == MEAN:
        return _mean(pool)
    if pool.op in ADAPTIVE:
        return _adaptive(pool)
    dims = (MAXIMUM if pool.op in MAXIMUM else AVERAGE)[pool.op]
    attrs, (x,) = pool.call.attrs, pool.call.args
    layout = _layout(attrs, dims)
    source = planar(arranged(shape_of(x), layout, "NC" + SPATIAL[dims]))
    result = planar(arranged(shape_of(pool.call), layout, "NC" + SPATIAL[dims]))
    settings: dict[str, Any] = {**window(attrs, dims)}
    size = [1] * (max(2, dims) - dims) + [int(k) for k in attrs.pool_size]
    if any(d != 1 for d in settings.pop("dilation")):
        raise Unsupported("a dilated window")
    overhang = False
    for axis, (k, stride) in enumerate(zip(size, settings["stride"], strict=True)):
        extent, before = source.dims[2 + axis], settings["pre_padding"][axis]
        last = (result.dims[2 + axis] - 1) * stride - before
        # Of ceil mode: the last window may reach beyond the declared padding.
        after = max(last + k - extent, settings["post_padding"][axis])
        overhang |= after > settings["post_padding"][axis]
        if last >= extent or max(before, after) >= k:
            raise Unsupported("a window that may lie in the padding only")
        settings["post_padding"][axis] = after
    mode = "max" if pool.op in MAXIMUM else "average"
    if mode == "average" and bool(attrs.count_include_pad):
        if overhang:
            raise Unsupported("a mean that counts the padding, of windows that reach beyond it")
        mode = "average_with_padding"
    return Problem(
        "pool", dtype_of(x, pool.call), {"x": operand(x, source)}, result, {**settings, "window": size, "mode": mode}
    )


def _mean(pool: Binding) -> Problem:
    """The mean over all spatial axes, of channels first or last."""
    (x,) = pool.call.args
    rank = len(shape_of(x))
    axes = sorted(int(a) % rank for a in pool.call.attrs.axis) if pool.call.attrs.axis is not None else []
    if rank not in (3, 4, 5):
        raise Unsupported(f"a mean over axes {axes} of a tensor of rank {rank}")
    if axes == list(range(2, rank)):
        layout = "NC" + SPATIAL[rank - 2]
    elif axes == list(range(1, rank - 1)):
        layout = "N" + SPATIAL[rank - 2] + "C"
    else:
        raise Unsupported(f"a mean over axes {axes} of a tensor of rank {rank}")
    return _whole(pool, layout)


def _adaptive(pool: Binding) -> Problem:
    layout = _layout(pool.call.attrs, ADAPTIVE[pool.op])
    given, wanted = shape_of(pool.call.args[0]), shape_of(pool.call)
    if any(wanted[i] != 1 for i, axis in enumerate(layout) if axis in "DHW") or len(given) != len(wanted):
        raise Unsupported("more than one window")
    return _whole(pool, layout)


def _whole(pool: Binding, layout: str) -> Problem:
    """One window that is the whole image."""
    (x,) = pool.call.args
    spatial = layout.replace("N", "").replace("C", "")
    source = planar(arranged(shape_of(x), layout, "NC" + spatial))
    n, c, *extents = source.dims
    dims = (n, c, *([1] * len(extents)))
    result = View(dims, compact(dims) if layout[1] == "C" else (c, 1, *([c] * len(extents))))
    settings = {
        "stride": [1] * len(extents),
        "pre_padding": [0] * len(extents),
        "post_padding": [0] * len(extents),
        "window": list(extents),
        "mode": "average",
    }
    return Problem("pool", dtype_of(x, pool.call), {"x": operand(x, source)}, result, settings)


def _layout(attrs: Any, dims: int) -> str:
    layout, spatial = str(attrs.layout), SPATIAL[dims]
    if layout not in ("NC" + spatial, "N" + spatial + "C") or str(attrs.out_layout) not in ("", layout):
        raise Unsupported(f"layout {layout}")
    return layout
