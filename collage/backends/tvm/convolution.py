"""Convolutions as sums of shifted matrix products, which a CPU's vector units like.

TOPI's convolution indexes its data with both image coordinates, so that vectors have to stop at the end of every
image row. Here the last two axes of the padded image are one flat axis with rows of `stride` elements, and output
position q = row * stride + column reads position q + (kernel row) * stride + (kernel column) for *every* q: one long
contiguous axis, with a few columns of waste per row that a last stage drops. A convolution with strides first deals
its data out to one image per phase (space to depth), and becomes one without.

Stages: `padded` (the data, dealt out and padded), `sum` (the products), `rows` (the same numbers as rows and
columns), the output. The schedule knows the stages by their annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import te, tirx

#: Flat extents are multiples of this: the lanes of the widest vectors.
LANES = 16
#: The image slab that one task reads, all channels of a few rows, should fit in a second-level cache; bytes.
SLAB = 512 * 1024

#: Annotation of the stage that pads, which is never inlined.
PADDED = "collage.padded"
#: Annotation of the stage that turns flat positions into rows and columns; its value is the row stride.
ROWS = "collage.rows"


@dataclass(frozen=True)
class Shape:
    """A convolution over (depth, height, width); axes that the operator lacks have extent 1.

    Attributes
    ----------
    image, kernel, strides, before, after, dilation
        Per spatial axis; `before` and `after` are the padding.
    """

    batch: int
    groups: int
    group_in: int
    group_out: int
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def out(self) -> tuple[int, ...]:
        sizes = zip(self.image, self.kernel, self.strides, self.before, self.after, self.dilation, strict=True)
        return tuple((i + b + a - (k - 1) * d - 1) // s + 1 for i, k, s, b, a, d in sizes)

    @property
    def reach(self) -> tuple[int, ...]:
        """How far the kernel reaches beyond an output position, in positions of the dealt-out image."""
        return tuple((k - 1) * d // s for k, s, d in zip(self.kernel, self.strides, self.dilation, strict=True))

    @property
    def phases(self) -> tuple[int, ...]:
        """Into how many images the data are dealt out along each axis."""
        axes = zip(self.kernel, self.strides, self.dilation, strict=True)
        return tuple(max(t * d % s for t in range(k)) + 1 for k, s, d in axes)


@dataclass(frozen=True)
class Geometry:
    """The flat axis: blocks of `rows` output rows, each block `padded_rows * stride` positions, a multiple of
    `LANES`.
    """

    rows: int
    padded_rows: int
    stride: int

    @property
    def extent(self) -> int:
        return self.padded_rows * self.stride


def flat_geometry(shape: Shape, itemsize: int) -> Geometry:
    """The geometry with little waste whose slabs fit in `SLAB`; ties go to more rows."""
    _, height, width = shape.out
    _, below, beside = shape.reach
    depth, phases = shape.kernel[0], shape.phases[1] * shape.phases[2]
    position_bytes = shape.group_in * depth * phases * itemsize
    # With few output channels to share a vector, several vectors at a time have to hide the latency of additions.
    unit = LANES * (4 if shape.group_out <= 4 else 2 if shape.group_out <= 12 else 1)
    best: tuple[float, Geometry] | None = None
    for rows in (r for r in range(height, 0, -1) if height % r == 0):
        for stride in range(width + beside, width + beside + LANES):
            padded = next(p for p in range(rows, rows + unit) if p * stride % unit == 0)
            geometry = Geometry(rows, padded, stride)
            slab = (padded + below) * stride * position_bytes
            score = geometry.extent / (rows * width) + 0.1 * min(max(slab / SLAB - 1.0, 0.0), 8.0)
            if best is None or score < best[0] * 0.999:
                best = score, geometry
    assert best is not None
    return best[1]


def convolution(data: te.Tensor, weight: te.Tensor, shape: Shape) -> te.Tensor:
    """The convolution of data (N, C, ...) with weight (O, C / groups, ...) as a tensor (N, O, ...)."""
    rank = len(data.shape) - 2
    rows, geometry = flat_sums(data, lambda o, c, *taps: weight(o, c, *taps[3 - rank :]), shape)

    def picked(n: Any, o: Any, *position: Any) -> Any:
        d, h, w = [_int(0)] * (3 - rank) + list(position)
        g, in_group = (_int(0), o) if shape.groups == 1 else (o // shape.group_out, o % shape.group_out)
        return rows[n, g, in_group, d, h // geometry.rows, h % geometry.rows, w]

    out_shape = (shape.batch, shape.groups * shape.group_out, *shape.out[3 - rank :])
    return te.compute(_ints(*out_shape), picked, "convolution")


def transposed_convolution(
    data: te.Tensor, weight: te.Tensor, strides: tuple[int, int], padding: tuple[int, int], out: tuple[int, int]
) -> te.Tensor:
    """The transposed convolution of data (N, C, H, W) with weight (C, O, KH, KW) as a tensor (N, O, *out).

    Output positions that are equal modulo the strides (phases) see the same taps of the kernel. Each output channel
    gives one channel per phase of a plain convolution without strides, whose results are dealt out at the end.
    """
    batch, channels, *image = (int(d) for d in data.shape)
    _, out_channels, *kernel = (int(d) for d in weight.shape)
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    first = [p // s for p, s in zip(padding, strides, strict=True)]
    count = [(p + o - 1) // s + 1 - f for p, o, s, f in zip(padding, out, strides, first, strict=True)]
    before = [t - 1 - f for t, f in zip(taps, first, strict=True)]
    after = [c - i - b + t - 1 for c, i, b, t in zip(count, image, before, taps, strict=True)]
    shape = Shape(
        batch=batch,
        groups=1,
        group_in=channels,
        group_out=out_channels * strides[0] * strides[1],
        image=(1, *image),
        kernel=(1, *taps),
        strides=(1, 1, 1),
        before=(0, *before),
        after=(0, *after),
        dilation=(1, 1, 1),
    )

    def tap(o: Any, c: Any, _depth: Any, row: Any, column: Any) -> Any:
        y = o // strides[1] % strides[0] + (taps[0] - 1 - row) * strides[0]
        x = o % strides[1] + (taps[1] - 1 - column) * strides[1]
        value = weight(c, o // (strides[0] * strides[1]), y, x)
        exact = all(k % s == 0 for k, s in zip(kernel, strides, strict=True))
        inside = tirx.all(y < kernel[0], x < kernel[1])
        return value if exact else tirx.if_then_else(inside, value, tirx.const(0, weight.dtype))

    rows, geometry = flat_sums(data, tap, shape)

    def picked(n: Any, o: Any, h: Any, w: Any) -> Any:
        y, x = h + padding[0], w + padding[1]
        phase = (o * strides[0] + y % strides[0]) * strides[1] + x % strides[1]
        row, column = y // strides[0] - first[0], x // strides[1] - first[1]
        return rows[n, _int(0), phase, _int(0), row // geometry.rows, row % geometry.rows, column]

    return te.compute(_ints(batch, out_channels, *out), picked, "transposed")


def flat_sums(data: te.Tensor, weight: Any, shape: Shape) -> tuple[te.Tensor, Geometry]:
    """All sums of a convolution, as a tensor (N, group, O in group, depth, block, row, column).

    Parameters
    ----------
    weight
        Function (output channel, input channel in its group, depth, row, column) -> value.
    """
    geometry = flat_geometry(shape, tvm.DataType(data.dtype).itemsize)
    depth, height, _ = shape.out
    flat = _flat_image(data, shape, geometry)
    channel = te.reduce_axis((0, _int(shape.group_in)), "channel")
    taps = [te.reduce_axis((0, _int(k)), f"tap{i}") for i, k in enumerate(shape.kernel)]

    def products(n: Any, g: Any, o: Any, d: Any, b: Any, q: Any) -> Any:
        away = [tap * step for tap, step in zip(taps, shape.dilation, strict=True)]
        phase = [away[1] % shape.strides[1], away[2] % shape.strides[2]]
        row = b * geometry.rows + away[1] // shape.strides[1]
        shift = row * geometry.stride + away[2] // shape.strides[2]
        value = flat(n, g * shape.group_in + channel, d * shape.strides[0] + away[0], *phase, shift + q)
        return te.sum(value * weight(g * shape.group_out + o, channel, *taps), [channel, *taps])

    outer = (shape.batch, shape.groups, shape.group_out, depth, height // geometry.rows)
    total = te.compute(_ints(*outer, geometry.extent), products, "sum")
    rows = te.compute(
        _ints(*outer, geometry.padded_rows, geometry.stride),
        lambda n, g, o, d, b, r, c: total[n, g, o, d, b, r * geometry.stride + c],
        "rows",
        attrs={ROWS: geometry.stride},
    )
    return rows, geometry


def _flat_image(data: te.Tensor, shape: Shape, geometry: Geometry) -> Any:
    """A function (n, channel, depth, row phase, column phase, flat position) -> value."""
    rank = len(data.shape) - 2
    _, height, width = shape.out
    exact = geometry.stride == width and geometry.extent == geometry.rows * width
    if (
        exact
        and not any(shape.before + shape.after)
        and shape.strides[1:] == (1, 1)
        and shape.image[1:] == (height, width)
    ):
        # Pointwise: the image is its own flat form.
        def plain(n: Any, c: Any, d: Any, _row: Any, _column: Any, q: Any) -> Any:
            return data(n, c, *[d, q // width, q % width][3 - rank :])

        return plain
    _, below, beside = shape.reach
    last = (height - geometry.rows + geometry.padded_rows + below) * geometry.stride + beside
    positions = -(-last // geometry.stride) * geometry.stride
    deep = shape.image[0] + shape.before[0] + shape.after[0]

    def padded(n: Any, c: Any, d: Any, row: Any, column: Any, q: Any) -> Any:
        index = [
            d - shape.before[0],
            q // geometry.stride * shape.strides[1] + row - shape.before[1],
            q % geometry.stride * shape.strides[2] + column - shape.before[2],
        ]
        inside = [tirx.all(x >= 0, x < size) for x, size in zip(index, shape.image, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), data(n, c, *index[3 - rank :]), tirx.const(0, data.dtype))

    extents = (shape.batch, shape.groups * shape.group_in, deep, *shape.phases[1:], positions)
    return te.compute(_ints(*extents), padded, "padded", attrs={PADDED: geometry.stride})


def _int(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def _ints(*values: int) -> tuple[tirx.IntImm, ...]:
    return tuple(_int(v) for v in values)
