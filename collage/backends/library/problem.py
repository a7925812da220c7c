"""What a library is asked to compute: one operation with an epilogue, on tensors in cuDNN's terms.

There a tensor is N x C x spatial extents whatever its layout in memory; the layout is in the strides. Readers
(`convolution`; `window`, `rows` and `attention` in `collage.backends.cuda.cudnn`) turn a partition's calls into a
`Problem`, or raise `Unsupported`; the same reading decides whether a match becomes a candidate, and makes the blob of
one that did.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.library.activation import operator
from collage.backends.library.composite import Composite
from collage.backends.library.view import View, compact
from collage.errors import CodegenError
from collage.rules.pattern_rule import PatternMatch

#: What engines compute with; sums are float32 for all of them.
DTYPES = ("float32", "float16", "bfloat16")


class Unsupported(Exception):
    """The library does not compute this, or not with the results that Relax defines; the message says why."""


@dataclass(frozen=True)
class Binding:
    """One call of a partition, and the variable that it is bound to."""

    var: Any
    call: Any

    @property
    def op(self) -> str:
        """The operator's name, "" for what is no call of a Relax operator."""
        return operator(self.call)


@dataclass(frozen=True)
class Operand:
    """A tensor that is read.

    Attributes
    ----------
    expr
        The Relax variable or constant that it is.
    view
        Its extents and strides.
    value
        A constant's content as it goes to the engine; None for variables.
    dtype
        Of its elements.
    """

    expr: Any
    view: View
    value: np.ndarray | None
    dtype: str


@dataclass(frozen=True)
class Problem:
    """One partition.

    Attributes
    ----------
    op
        "conv", "conv_transpose", "pool", "softmax", "layer_norm", "rms_norm" or "attention".
    dtype
        Of the result, and of all operands that do not say otherwise.
    operands
        Role ("x", "w", "bias", "residual", ...) -> tensor.
    result
        Extents and strides of what is written.
    settings
        All else of the header; JSON values only.
    """

    op: str
    dtype: str
    operands: Mapping[str, Operand]
    result: View
    settings: Mapping[str, Any] = field(default_factory=dict)


Reader = Callable[[Sequence[Binding]], Problem]


def is_read_by(read: Reader) -> Callable[[PatternMatch], bool]:
    """The check of a pattern's matches: whether `read` takes them, so that they can be compiled."""

    def check(match: PatternMatch) -> bool:
        nodes = match.graph.nodes
        try:
            read([Binding(nodes[i].var, nodes[i].expr) for i in match.inside])
        except Unsupported:
            return False
        return True

    return check


def problem_of(composite: Composite, read: Reader) -> Problem:
    """The problem that a partition is.

    Raises
    ------
    CodegenError
        `read` does not take it.
    """
    try:
        return read([Binding(var, call) for var, call in composite.bound.items()])
    except Unsupported as refusal:
        raise CodegenError(f"{composite.label}: {refusal}") from None


def shape_of(expr: Any) -> tuple[int, ...]:
    """The static shape of a tensor expression.

    Raises
    ------
    Unsupported
        It is no tensor, or has a symbolic extent, or no elements.
    """
    ty = expr.ty
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise Unsupported("an operand is no tensor of known shape")
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in ty.shape.values):
        raise Unsupported("an operand's shape is dynamic")
    shape = tuple(int(extent) for extent in ty.shape.values)
    if math.prod(shape) == 0:
        raise Unsupported("an operand has no elements")
    return shape


def dtype_of(*exprs: Any) -> str:
    """The one dtype of tensor expressions. Raises Unsupported for several, or one that engines lack."""
    found = sorted({str(expr.ty.dtype) for expr in exprs})
    if len(found) != 1 or found[0] not in DTYPES:
        raise Unsupported(f"dtype {' and '.join(found)}")
    return found[0]


def constant(expr: Any) -> np.ndarray | None:
    """A constant's content; None for what is no constant."""
    if not isinstance(expr, tvm.ir.GenericConst):
        return None
    value: np.ndarray = expr.value.numpy()
    return value


def arranged(shape: Sequence[int], layout: str, order: str) -> View:
    """The view of a row-major tensor whose axes are named by `layout`, with the axes in `order`.

    Example: `arranged((1, 6, 6, 4), "NHWC", "NCHW")` has extents 1, 4, 6, 6 and strides 144, 1, 24, 4.

    Raises
    ------
    Unsupported
        The layout does not have exactly these axes.
    """
    if sorted(layout) != sorted(order) or len(layout) != len(shape):
        raise Unsupported(f"layout {layout}")
    strides = compact(shape)
    return View(
        tuple(int(shape[layout.index(axis)]) for axis in order), tuple(strides[layout.index(axis)] for axis in order)
    )


def planar(view: View) -> View:
    """A view of one spatial axis as one of two, of which the first has extent 1: libraries want two at least."""
    if len(view.dims) != 3:
        return view
    (n, c, w), (sn, sc, sw) = view.dims, view.strides
    return View((n, c, 1, w), (sn, sc, w * sw, sw))


def operand(expr: Any, view: View) -> Operand:
    """A tensor that is read as it lies in memory; a constant keeps its layout."""
    return Operand(expr, view, constant(expr), str(expr.ty.dtype))


def is_same(a: Any, b: Any) -> bool:
    """Whether two expressions are one object."""
    return bool(a is b or (hasattr(a, "same_as") and a.same_as(b)))
