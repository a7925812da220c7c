"""Convolutions and transposed convolutions, in one to three dimensions, grouped and dilated, with their epilogues.

A transposed convolution is the gradient of a convolution by its input: the backward-data operation, of which the
network's input is the gradient of the result, and the kernel is that of the forward convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from tvm.relax.dpl import is_op, wildcard

from collage.backends.library.activation import silu_spellings
from collage.backends.library.epilogue import read_epilogue
from collage.backends.library.problem import (
    Binding,
    Operand,
    Problem,
    Unsupported,
    arranged,
    constant,
    dtype_of,
    operand,
    planar,
    shape_of,
)
from collage.backends.library.view import View, compact
from collage.rules.pattern_rule import PatternMatch

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
FORWARD = {f"relax.nn.conv{d}d": d for d in SPATIAL}
TRANSPOSED = {f"relax.nn.conv{d}d_transpose": d for d in SPATIAL}

Pattern = tuple[str, Any, Callable[[PatternMatch], bool]]


def convolution_patterns(
    label: str, operators: Iterable[str], activations: Iterable[str], check: Callable[[PatternMatch], bool]
) -> list[Pattern]:
    """Convolution, up to two sums (bias, residual), activation: (label, pattern, check) for `library_rule`.

    Parameters
    ----------
    label
        Of the bare convolution; "_add" is appended for each sum and "_act" for an activation.
    activations
        Operators of one tensor, and perhaps numbers; with `relax.sigmoid` among them, gates too.
    """
    activations = list(activations)
    found: list[Pattern] = []
    value = reduce(or_, [is_op(name)(wildcard(), wildcard()) for name in operators])
    for sums in range(3):
        name = label + "_add" * sums
        found += [(name, value, check), (f"{name}_act", _activated(value, activations), check)]
        value = is_op("relax.add")(value, wildcard())
    return found


def _activated(value: Any, activations: Sequence[str]) -> Any:
    plain = [is_op(name)(value, varg_default_wildcard=True) for name in activations]
    gate = silu_spellings(value) if "relax.sigmoid" in activations else ()
    return reduce(or_, [*gate, *plain])


def read_convolution(bindings: Sequence[Binding]) -> Problem:
    """The problem of a convolution and its epilogue.

    Raises
    ------
    Unsupported
        A layout, dtype or epilogue that no library takes.
    """
    anchor, rest = bindings[0], bindings[1:]
    transposed = anchor.op in TRANSPOSED
    spatial = SPATIAL[TRANSPOSED[anchor.op] if transposed else FORWARD[anchor.op]]
    x, w = anchor.call.args
    attrs = anchor.call.attrs
    dtype = dtype_of(x, w, anchor.call)
    layout = str(attrs.data_layout)
    if layout not in ("NC" + spatial, "N" + spatial + "C") or str(attrs.out_layout) not in ("", layout):
        raise Unsupported(f"layouts {layout} and {attrs.out_layout}")
    result = planar(arranged(shape_of(anchor.call), layout, "NC" + spatial))
    steps, operands = read_epilogue(anchor, rest, result, layout.index("C"))
    roles = {"x": operand(x, planar(arranged(shape_of(x), layout, "NC" + spatial))), **operands}
    # Of a transposed convolution, the filters of the forward one are the input channels.
    axes = ("IO" if transposed else "OI") + spatial
    roles["w"] = _kernel(w, str(attrs.kernel_layout), axes, channels_last=layout.endswith("C"))
    settings = {**window(attrs, len(spatial)), "epilogue": steps}
    groups = int(attrs.groups)
    channels = roles["x"].view.dims[1] if not transposed else result.dims[1]
    if roles["w"].view.dims[1] * groups != channels:
        raise Unsupported(f"{groups} groups do not fit the kernel")
    return Problem("conv_transpose" if transposed else "conv", dtype, roles, result, {**settings, "groups": groups})


def read_on_host(bindings: Sequence[Binding]) -> Problem:
    """A float32 convolution in planes (NCHW) whose weights are constants, as the engines on the CPU take them.

    Raises
    ------
    Unsupported
        It is another one.
    """
    problem = read_convolution(bindings)
    operands = problem.operands
    if problem.dtype != "float32":
        raise Unsupported(f"dtype {problem.dtype}")
    if any(operands[role].value is None for role in ("w", "bias") if role in operands):
        raise Unsupported("weights or a bias that are no constants")
    if any(operands[role].value is not None for role in ("x", "residual") if role in operands):
        raise Unsupported("an image or a residual that is a constant")
    if any(view.strides != compact(view.dims) for view in (operands["x"].view, problem.result)):
        raise Unsupported("channels last")
    return problem


def window(attrs: Any, dims: int) -> dict[str, list[int]]:
    """Strides, dilations and paddings of an operator; Relax orders paddings as all begins, then all ends."""
    padding = [int(p) for p in attrs.padding]
    lifted = max(2, dims) - dims
    return {
        "stride": [1] * lifted + [int(s) for s in attrs.strides],
        "dilation": [1] * lifted + [int(d) for d in attrs.dilation],
        "pre_padding": [0] * lifted + padding[:dims],
        "post_padding": [0] * lifted + padding[dims:],
    }


def _kernel(w: Any, layout: str, axes: str, channels_last: bool) -> Operand:
    """The kernel in the order that goes with data of this layout; a constant is rearranged once for all."""
    wanted = axes[0] + axes[2:] + axes[1] if channels_last else axes
    shape = shape_of(w)
    arranged(shape, layout, axes)
    value = constant(w)
    if value is None:
        if layout != wanted:
            raise Unsupported(f"a kernel of layout {layout} that is no constant")
        stored = shape
    else:
        value = np.ascontiguousarray(value.transpose([layout.index(axis) for axis in wanted]))
        stored = value.shape
    strides = compact(stored)
    view = View(tuple(stored[wanted.index(a)] for a in axes), tuple(strides[wanted.index(a)] for a in axes))
    return Operand(w, planar(view), value, str(w.ty.dtype))
