"""Relax operators as loops that the schedule rules can make fast, where TVM's own operator library gives loops that
they cannot.
"""

from __future__ import annotations

import functools
from typing import Any

from tvm import ir, relax, te, tirx

from collage.backends.tvm.convolution import LANES, Shape, convolution, transposed_convolution
from collage.backends.tvm.extremum import legalize_max, legalize_min


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
    types = [argument.ty for argument in call.args]
    if not (plain and str(attrs.out_layout) == str(attrs.data_layout) and _plain_floats(call)):
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


def legalize_transposed(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.nn.conv2d_transpose`."""
    attrs = call.attrs
    plain = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)) == ("NCHW", "IOHW", "NCHW")
    if not plain or int(attrs.groups) != 1 or any(int(d) != 1 for d in attrs.dilation) or not _plain_floats(call):
        return call.op.get_attr("FLegalize")(builder, call)
    kernel = functools.partial(
        transposed_convolution,
        strides=(int(attrs.strides[0]), int(attrs.strides[1])),
        padding=(int(attrs.padding[0]), int(attrs.padding[1])),
        out=(int(call.ty.shape.values[2]), int(call.ty.shape.values[3])),
    )
    return builder.call_te(kernel, *call.args, primfunc_name_hint="conv2d_transpose")


def legalize_matmul(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.matmul`: columns beyond the last full vector are a product of their own."""
    columns = call.ty.shape.values[-1] if call.ty.ndim >= 2 else None
    ranks = [argument.ty.ndim for argument in call.args]
    awkward = isinstance(columns, tirx.IntImm) and int(columns) > 4 * LANES and int(columns) % LANES != 0
    if not awkward or min(ranks) < 2 or not _plain_floats(call):
        return call.op.get_attr("FLegalize")(builder, call)
    return builder.call_te(_split_matmul, *call.args, primfunc_name_hint="matmul")


def _split_matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    columns = int(b.shape[-1])
    whole = columns // LANES * LANES
    batch = [max(x, y) for x, y in zip(_batch(a, b), _batch(b, a), strict=True)]
    shape = [*(tirx.IntImm("int64", d) for d in batch), a.shape[-2]]

    def part(start: int, count: int, name: str) -> te.Tensor:
        k = te.reduce_axis((tirx.IntImm("int64", 0), a.shape[-1]), "k")

        def product(*i: Any) -> Any:
            left = [0 if int(d) == 1 else x for d, x in zip(a.shape[:-2], i[-2 - len(a.shape[:-2]) : -2], strict=True)]
            right = [0 if int(d) == 1 else x for d, x in zip(b.shape[:-2], i[-2 - len(b.shape[:-2]) : -2], strict=True)]
            return te.sum(a(*left, i[-2], k) * b(*right, k, start + i[-1]), k)

        return te.compute([*shape, tirx.IntImm("int64", count)], product, name)

    main, tail = part(0, whole, "matmul"), part(whole, columns - whole, "matmul_tail")
    return te.compute(
        [*shape, b.shape[-1]],
        lambda *i: tirx.if_then_else(i[-1] < whole, main(*i), tail(*i[:-1], i[-1] - whole)),
        "matmul_columns",
    )


def _batch(a: te.Tensor, other: te.Tensor) -> list[int]:
    missing = max(len(other.shape) - len(a.shape), 0)
    return [1] * missing + [int(d) for d in a.shape[:-2]]


def legalize_power(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.power`: a small whole power is a product."""
    base, exponent = call.args
    value = exponent.value.numpy() if isinstance(exponent, ir.GenericConst) else None
    if value is None or value.ndim > 0 or value not in (2, 3, 4):
        return call.op.get_attr("FLegalize")(builder, call)

    def product(x: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            square = x(*i) * x(*i)
            return {2: square, 3: square * x(*i), 4: square * square}[int(value)]

        return te.compute(x.shape, element, "power")

    return builder.call_te(product, base, primfunc_name_hint="power")


def _plain_floats(call: relax.Call) -> bool:
    """Whether all tensors of a call have static shapes and one dtype, float32 or float64."""
    types = [*(argument.ty for argument in call.args), call.ty]
    static = all(
        isinstance(t.shape, relax.ShapeExpr) and all(isinstance(d, tirx.IntImm) for d in t.shape) for t in types
    )
    dtypes = {str(t.dtype) for t in types}
    return static and len(dtypes) == 1 and dtypes <= {"float32", "float64"}


#: For `relax.transform.LegalizeOps`: operator -> its legalisation.
LEGALIZATIONS = {
    "relax.max": legalize_max,
    "relax.min": legalize_min,
    **{f"relax.nn.conv{rank}d": legalize_convolution for rank in (1, 2, 3)},
    "relax.nn.conv2d_transpose": legalize_transposed,
    "relax.matmul": legalize_matmul,
    "relax.power": legalize_power,
}
