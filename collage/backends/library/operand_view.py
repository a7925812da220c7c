"""The tensor in memory that an operand is a view of, through the slices and permutations before it.

Libraries take pointers and strides: neither a slice nor a permutation moves anything for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collage.backends.library.composite import static_shape
from collage.backends.library.view import View
from collage.errors import CodegenError


def operand_view(expr: Any, defined: Callable[[Any], Any]) -> tuple[Any, View]:
    """(tensor, how the operand lies in it).

    Parameters
    ----------
    expr
        The operand.
    defined
        Expression -> the call of the partition that computes it; None for what comes from outside.

    Raises
    ------
    CodegenError
        Another operator of the partition computes it, or a shape is not static.
    """
    shape = static_shape(expr)
    if shape is None:
        raise CodegenError("an operand's shape is not static")
    call = defined(expr)
    if call is None:
        return expr, View.compact(shape)
    if call.op.name == "relax.permute_dims":
        source, view = operand_view(call.args[0], defined)
        axes = reversed(range(len(shape))) if call.attrs.axes is None else call.attrs.axes
        return source, view.permuted([int(axis) % len(shape) for axis in axes])
    if call.op.name == "relax.strided_slice":
        source, view = operand_view(call.args[0], defined)
        return source, _sliced(view, call, shape)
    raise CodegenError(f"an operand is made by {call.op.name}")


def _sliced(view: View, call: Any, shape: tuple[int, ...]) -> View:
    """By TVM's rule: negative bounds count from the end, then they are clamped."""
    axes, begins, _, *steps = ([int(number) for number in part.fields] for part in call.args[1:])
    for axis, begin, step in zip(axes, begins, steps[0] if steps else [1] * len(axes), strict=True):
        axis, extent = axis % len(shape), view.dims[axis]
        if step <= 0:
            raise CodegenError(f"a slice by {step}")
        first = min(max(begin + extent if begin < 0 else begin, 0), extent)
        view = view.sliced(axis, first, shape[axis], step)
    return view
