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

import functools
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

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
    image, kernel, strides, before, after, dilation: per spatial axis; `before` and `after` are the padding.
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
    best: tuple[float, Geometry] | None = None
    for rows in (r for r in range(height, 0, -1) if height % r == 0):
        for stride in range(width + beside, width + beside + LANES):
            padded = next(p for p in range(rows, rows + LANES) if p * stride % LANES == 0)
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
    geometry = flat_geometry(shape, tvm.DataType(data.dtype).itemsize)
    depth, height, _ = shape.out
    flat = _flat_image(data, shape, geometry)
    channel = te.reduce_axis((0, _int(shape.group_in)), "channel")
    taps = [te.reduce_axis((0, _int(k)), f"tap{i}") for i, k in enumerate(shape.kernel)]
    blocks = height // geometry.rows

    def products(n: Any, g: Any, o: Any, d: Any, b: Any, q: Any) -> Any:
        away = [tap * step for tap, step in zip(taps, shape.dilation, strict=True)]
        phase = [away[1] % shape.strides[1], away[2] % shape.strides[2]]
        shift = (b * geometry.rows + away[1] // shape.strides[1]) * geometry.stride + away[2] // shape.strides[2]
        value = flat(n, g * shape.group_in + channel, d * shape.strides[0] + away[0], *phase, shift + q)
        return te.sum(value * weight(g * shape.group_out + o, channel, *taps[3 - rank :]), [channel, *taps])

    outer = (shape.batch, shape.groups, shape.group_out, depth, blocks)
    total = te.compute(_ints(*outer, geometry.extent), products, "sum")
    rows = te.compute(
        _ints(*outer, geometry.padded_rows, geometry.stride),
        lambda n, g, o, d, b, r, c: total[n, g, o, d, b, r * geometry.stride + c],
        "rows",
        attrs={ROWS: geometry.stride},
    )

    def picked(n: Any, o: Any, *position: Any) -> Any:
        d, h, w = [_int(0)] * (3 - rank) + list(position)
        g, in_group = (_int(0), o) if shape.groups == 1 else (o // shape.group_out, o % shape.group_out)
        return rows[n, g, in_group, d, h // geometry.rows, h % geometry.rows, w]

    out_shape = (shape.batch, shape.groups * shape.group_out, *shape.out[3 - rank :])
    return te.compute(_ints(*out_shape), picked, "convolution")


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


def legalize_convolution(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.nn.conv1d`, `conv2d` and `conv3d`; what it does not take goes to TVM's own."""
    shape = shape_of(call)
    if shape is None:
        return call.op.get_attr("FLegalize")(builder, call)
    kernel = functools.partial(convolution, shape=shape)
    return builder.call_te(kernel, call.args[0], call.args[1], primfunc_name_hint="convolution")


def shape_of(call: relax.Call) -> Shape | None:
    """The convolution of a call; None when its layout, dtype or shape is one that this module does not take."""
    attrs = call.attrs
    rank = len(attrs.strides)
    plain = (
        str(attrs.data_layout)[:2] == "NC"
        and str(attrs.kernel_layout)[:2] == "OI"
        and len(attrs.data_layout) == rank + 2
    )
    types = [argument.ty for argument in call.args[:2]]
    static = all(
        isinstance(t.shape, relax.ShapeExpr) and all(isinstance(d, tirx.IntImm) for d in t.shape) for t in types
    )
    if not (plain and static and str(attrs.out_layout) == str(attrs.data_layout)):
        return None
    dtypes = {str(t.dtype) for t in types} | {str(call.ty.dtype)}
    if len(dtypes) != 1 or not dtypes <= {"float32", "float64"}:
        return None
    batch, channels, *image = (int(d) for d in types[0].shape)
    out_channels, group_in, *kernel = (int(d) for d in types[1].shape)
    groups, padding = int(attrs.groups), [int(p) for p in attrs.padding]

    def three(values: Any, fill: int) -> tuple[int, ...]:
        return (fill,) * (3 - rank) + tuple(int(v) for v in values)

    shape = Shape(
        batch=batch,
        groups=groups,
        group_in=group_in,
        group_out=out_channels // groups,
        image=three(image, 1),
        kernel=three(kernel, 1),
        strides=three(attrs.strides, 1),
        before=three(padding[:rank], 0),
        after=three(padding[rank:], 0),
        dilation=three(attrs.dilation, 1),
    )
    return shape if min(shape.out) > 0 and batch > 0 and channels == group_in * groups else None


def _int(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def _ints(*values: int) -> tuple[tirx.IntImm, ...]:
    return tuple(_int(v) for v in values)


#: For `relax.transform.LegalizeOps`: operator -> its legalisation.
LEGALIZATIONS = {f"relax.nn.conv{rank}d": legalize_convolution for rank in (1, 2, 3)}
