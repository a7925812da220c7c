"""How the matrices of a product lie in memory: sliced and permuted operands, broadcast batches, batches that are rows.

GEMM libraries take a matrix as a pointer and a leading dimension, a batch as a stride. A transposition, and the slices
and permutations of heads around attention's products, only change these numbers, so nothing has to be copied. A
batch whose rows lie one after another under one right-hand side is a single product with more rows (a linear layer on
a rank-3 input). What is left of the batch is one strided batch, the longest, and offsets for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from collage.backends.library.view import View

#: Calls of the library that one product may take for the part of its batch that has no single stride.
MAX_CALLS = 16


class UnsupportedLayout(ValueError):
    """The operands cannot be described by leading dimensions and strides."""


@dataclass(frozen=True)
class Matrix:
    """One operand's matrices, in elements.

    Attributes
    ----------
    transposed
        The columns, not the rows, are contiguous.
    ld
        Distance of neighbouring rows, or columns when transposed.
    stride
        Distance of neighbouring matrices of the batch; 0 when all are the same.
    """

    transposed: bool
    ld: int
    stride: int


@dataclass(frozen=True)
class MatmulLayout:
    """A product M x K times K x N, `batch` times per call, once for each triple of offsets (lhs, rhs, output)."""

    m: int
    n: int
    k: int
    batch: int
    lhs: Matrix
    rhs: Matrix
    output: Matrix
    offsets: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class _Axis:
    """An axis of the batch: its extent, and the strides of lhs, rhs and output along it."""

    extent: int
    strides: tuple[int, int, int]


def output_view(shape: Sequence[int], axes: Sequence[int] | None) -> View:
    """A product's result of this shape that is stored permuted: `axes` are those of the permute_dims after it."""
    if axes is None:
        return View.compact(shape)
    stored = View.compact([shape[a] for a in axes])
    return stored.permuted([list(axes).index(axis) for axis in range(len(shape))])


def matmul_layout(lhs: View, rhs: View, output: View) -> MatmulLayout:
    """The layout of `output = lhs x rhs`, with NumPy's rules for vectors and for the broadcasting of batches.

    Raises
    ------
    UnsupportedLayout
        A matrix is contiguous along neither axis, or the batch needs more than `MAX_CALLS` calls.
    """
    if 0 in (*lhs.dims, *rhs.dims, *output.dims):
        raise UnsupportedLayout("a tensor has no elements")
    if len(lhs.dims) == 1:
        output = _inserted(output, len(output.dims) - (len(rhs.dims) > 1))
        lhs = _inserted(lhs, 0)
    if len(rhs.dims) == 1:
        output, rhs = _inserted(output, len(output.dims)), _inserted(rhs, 1)
    (m, k), n = lhs.dims[-2:], rhs.dims[-1]
    rows = [lhs.strides[-2], output.strides[-2]]
    axes = _batch(lhs, rhs, output)
    joined = True
    while joined:
        joined = False
        for axis in axes:
            along = [axis.strides[0], axis.strides[2]]
            if axis.strides[1] == 0 and (m == 1 or along == [m * row for row in rows]):
                rows = along if m == 1 else rows
                m, joined = m * axis.extent, True
                axes.remove(axis)
                break
    axes = _merged(axes)
    longest = max(axes, key=lambda axis: axis.extent, default=_Axis(1, (0, 0, 0)))
    rest = [axis for axis in axes if axis is not longest]
    if prod(axis.extent for axis in rest) > MAX_CALLS:
        raise UnsupportedLayout(f"the batch needs more than {MAX_CALLS} calls")
    by_lhs, by_rhs, by_output = longest.strides
    a = _matrix(m, k, lhs.strides[-1], rows[0], by_lhs)
    b = _matrix(k, n, rhs.strides[-1], rhs.strides[-2], by_rhs)
    d = _matrix(m, n, output.strides[-1], rows[1], by_output)
    if d.transposed:
        raise UnsupportedLayout("the rows of the result are not contiguous")
    places = product(*(range(axis.extent) for axis in rest))
    starts = (lhs.offset, rhs.offset, output.offset)
    return MatmulLayout(m, n, k, longest.extent, a, b, d, tuple(_offset(starts, place, rest) for place in places))


def _offset(starts: Sequence[int], place: Sequence[int], axes: Sequence[_Axis]) -> tuple[int, int, int]:
    """Where the matrices of one place of the batch start."""
    lhs, rhs, output = (
        start + sum(at * axis.strides[i] for at, axis in zip(place, axes, strict=True))
        for i, start in enumerate(starts)
    )
    return lhs, rhs, output


def _inserted(view: View, axis: int) -> View:
    """With an axis of extent 1 before `axis`."""
    dims, strides = view.dims, view.strides
    return View((*dims[:axis], 1, *dims[axis:]), (*strides[:axis], 1, *strides[axis:]), view.offset)


def _batch(lhs: View, rhs: View, output: View) -> list[_Axis]:
    """The axes of the batch that are longer than 1, outermost first."""
    axes = []
    for place in range(3, len(output.dims) + 1):
        extent = output.dims[-place]
        strides = [view.strides[-place] if _extent(view, place) > 1 else 0 for view in (lhs, rhs, output)]
        if extent > 1:
            axes.append(_Axis(extent, (strides[0], strides[1], strides[2])))
    return axes[::-1]


def _extent(view: View, place: int) -> int:
    """The extent of the axis `place` from the end; 1 where the tensor has no such axis."""
    return view.dims[-place] if place <= len(view.dims) else 1


def _merged(axes: list[_Axis]) -> list[_Axis]:
    """Axes that lie one after another in all three tensors, as one."""
    for outer, inner in product(axes, axes):
        if outer is not inner and all(o == inner.extent * i for o, i in zip(outer.strides, inner.strides, strict=True)):
            rest = [axis for axis in axes if axis is not outer and axis is not inner]
            return _merged([*rest, _Axis(outer.extent * inner.extent, inner.strides)])
    return axes


def _matrix(rows: int, columns: int, along: int, down: int, stride: int) -> Matrix:
    """A matrix of rows x columns whose neighbours along a row lie `along` apart, down a column `down` apart."""
    if along == 1 or columns == 1:
        return Matrix(False, max(down if rows > 1 else 1, columns), stride)
    if down == 1 or rows == 1:
        return Matrix(True, max(along, rows), stride)
    raise UnsupportedLayout("a matrix is contiguous neither along its rows nor along its columns")
