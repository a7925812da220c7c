"""Operators that treat a tensor as rows: softmax, and the normalisations of a layer.

Rows lie in a view of extents rows x columns x 1 x 1 (normalisations), or outer x columns x inner x 1 (softmax), the
columns being cuDNN's channels. Scale and shift of a normalisation go to the device as float32, whatever the data's
dtype: cuDNN's kernels want them so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collage.backends.library.problem import (
    Binding,
    Operand,
    Problem,
    Unsupported,
    constant,
    dtype_of,
    operand,
    shape_of,
)
from collage.backends.library.view import View

SOFTMAX = "relax.nn.softmax"
LAYER_NORM = "relax.nn.layer_norm"
RMS_NORM = "relax.nn.rms_norm"


def read_rows(bindings: Sequence[Binding]) -> Problem:
    """The problem of one of them.

    Raises
    ------
    Unsupported
        A normalisation over other axes than the last ones, or whose scale is no constant.
    """
    if len(bindings) != 1:
        raise Unsupported("it has no epilogue")
    return _softmax(bindings[0]) if bindings[0].op == SOFTMAX else _norm(bindings[0])


def _softmax(binding: Binding) -> Problem:
    (x,) = binding.call.args
    shape = shape_of(x)
    if not shape:
        raise Unsupported("a scalar")
    axis = int(binding.call.attrs.axis) % len(shape)
    outer, columns, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    view = View((outer, columns, inner, 1), (columns * inner, inner, 1, 1))
    return Problem("softmax", dtype_of(x, binding.call), {"x": operand(x, view)}, view)


def _norm(binding: Binding) -> Problem:
    attrs, (x, *weights) = binding.call.attrs, binding.call.args
    shape = shape_of(x)
    axes = sorted(int(a) % len(shape) for a in attrs.axes)
    if axes != list(range(len(shape) - len(axes), len(shape))):
        raise Unsupported(f"normalisation over axes {axes} of {len(shape)}")
    layer = binding.op == LAYER_NORM
    if layer and not (bool(attrs.center) and bool(attrs.scale)):
        raise Unsupported("normalisation without scale or shift")
    columns = math.prod(shape[axes[0] :])
    rows = math.prod(shape) // columns
    view = View((rows, columns, 1, 1), (columns, 1, columns, columns))
    operands = {"x": operand(x, view)}
    for role, weight in zip(("scale", "bias"), weights, strict=False):
        operands[role] = _row(weight, columns)
    settings = {"epsilon": float(attrs.epsilon)}
    return Problem("layer_norm" if layer else "rms_norm", dtype_of(x, binding.call), operands, view, settings)


def _row(weight: Any, columns: int) -> Operand:
    value = constant(weight)
    if value is None or value.size != columns:
        raise Unsupported("a scale or shift that is no constant of one element per column")
    view = View((1, columns, 1, 1), (columns, 1, columns, columns))
    return Operand(weight, view, value.reshape(columns).astype(np.float32), "float32")
