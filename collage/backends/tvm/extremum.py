"""Maximum and minimum over axes, right for rows of infinities.

TVM reduces from the largest finite number, so that the maximum of a row of negative infinities is -3.4e38: wrong for
a fully masked row of attention scores. These reduce from infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx


def legalize_max(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.max`; integers go to TVM's own."""
    return _legalize(builder, call, lambda a, b: tirx.Max(a, b), float("-inf"))


def legalize_min(builder: relax.BlockBuilder, call: relax.Call) -> Any:
    """Legalisation of `relax.min`; integers go to TVM's own."""
    return _legalize(builder, call, lambda a, b: tirx.Min(a, b), float("inf"))


def _legalize(builder: relax.BlockBuilder, call: relax.Call, combine: Callable[..., Any], identity: float) -> Any:
    if not str(call.ty.dtype).startswith("float"):
        return call.op.get_attr("FLegalize")(builder, call)
    rank = len(call.args[0].ty.shape.values)
    axes = range(rank) if call.attrs.axis is None else sorted({int(axis) % rank for axis in call.attrs.axis})
    keep = bool(call.attrs.keepdims)

    def reduce(x: Any) -> Any:
        inner = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes}
        reducer = te.comm_reducer(combine, lambda dtype: tirx.const(identity, dtype), name="extremum")
        kept = [axis for axis in range(rank) if keep or axis not in inner]

        def element(*outer: Any) -> Any:
            at = dict(zip(kept, outer, strict=True))
            return reducer(x(*(inner.get(axis, at.get(axis)) for axis in range(rank))), axis=list(inner.values()))

        return te.compute([1 if axis in inner else x.shape[axis] for axis in kept], element, name="extremum")

    return builder.call_te(reduce, call.args[0], primfunc_name_hint="extremum")
