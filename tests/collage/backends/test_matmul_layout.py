"""The numbers that describe a product to a GEMM library, read back as the library reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.backends.library.matmul.layout import (
    MAX_CALLS,
    MatmulLayout,
    Matrix,
    UnsupportedLayout,
    matmul_layout,
    output_view,
)
from collage.backends.library.view import View

pytestmark = pytest.mark.emulation


def matrices(memory: np.ndarray, matrix: Matrix, offset: int, count: int, rows: int, columns: int) -> np.ndarray:
    """A batch of matrices in flat memory: pointer, leading dimension, stride; views, not copies."""
    size = memory.itemsize
    steps = (1, matrix.ld) if matrix.transposed else (matrix.ld, 1)
    assert matrix.ld >= (rows if matrix.transposed else columns)  # what libraries demand
    strides = (matrix.stride * size, steps[0] * size, steps[1] * size)
    return np.lib.stride_tricks.as_strided(memory[offset:], (count, rows, columns), strides)


def run(layout: MatmulLayout, lhs: np.ndarray, rhs: np.ndarray, size: int) -> np.ndarray:
    """The result's memory, as a library would write it."""
    result = np.full(size, np.nan)
    for at in layout.offsets:
        a = matrices(lhs, layout.lhs, at[0], layout.batch, layout.m, layout.k)
        b = matrices(rhs, layout.rhs, at[1], layout.batch, layout.k, layout.n)
        matrices(result, layout.output, at[2], layout.batch, layout.m, layout.n)[...] = a @ b
    return result


@st.composite
def products(draw: st.DrawFn) -> tuple[np.ndarray, list[int], np.ndarray, list[int], list[int]]:
    """Arrays as stored, and permutations of lhs, rhs and result that leave one axis of each matrix contiguous."""
    extents = st.integers(1, 3)
    m, k, n = draw(extents), draw(extents), draw(extents)
    batch = draw(st.lists(extents, max_size=3))

    def operand(rows: int, columns: int) -> tuple[np.ndarray, list[int]]:
        kept = draw(st.integers(0, len(batch)))
        own = [extent if draw(st.booleans()) else 1 for extent in batch[len(batch) - kept :]]
        shape = [*own, rows, columns]
        axes = draw(st.permutations(range(len(shape))))
        stored = [0] * len(shape)
        for place, axis in enumerate(axes):
            stored[axis] = shape[place]
        return np.arange(1.0, np.prod(stored) + 1).reshape(stored), list(axes)

    (lhs, lhs_axes), (rhs, rhs_axes) = operand(m, k), operand(k, n)
    rank = len(np.broadcast_shapes(lhs.transpose(lhs_axes).shape[:-2], rhs.transpose(rhs_axes).shape[:-2])) + 2
    return lhs, lhs_axes, rhs, rhs_axes, draw(st.permutations(range(rank)))


@settings(max_examples=150, deadline=None)
@given(products())
def test_any_layout_that_is_taken_gives_the_product(
    drawn: tuple[np.ndarray, list[int], np.ndarray, list[int], list[int]],
) -> None:
    lhs, lhs_axes, rhs, rhs_axes, axes = drawn
    expected = lhs.transpose(lhs_axes) @ rhs.transpose(rhs_axes)
    try:
        layout = matmul_layout(
            View.compact(lhs.shape).permuted(lhs_axes),
            View.compact(rhs.shape).permuted(rhs_axes),
            output_view(expected.shape, axes),
        )
    except UnsupportedLayout:
        return
    assert len(layout.offsets) <= MAX_CALLS
    memory = run(layout, lhs.ravel(), rhs.ravel(), expected.size)
    np.testing.assert_array_equal(memory, expected.transpose(axes).ravel())


def layout_of(lhs: View, rhs: View, shape: tuple[int, ...]) -> MatmulLayout:
    return matmul_layout(lhs, rhs, View.compact(shape))


def test_a_linear_layer_on_rank_3_is_one_product_with_more_rows() -> None:
    layout = layout_of(View.compact((2, 16, 64)), View.compact((64, 32)), (2, 16, 32))
    assert (layout.m, layout.batch, layout.offsets) == (32, 1, ((0, 0, 0),))


def test_heads_are_a_strided_batch_of_what_was_not_copied() -> None:
    """Queries of 16 positions, 4 heads and 8 numbers: head h starts at 8 h, its rows are 32 apart."""
    queries = View.compact((1, 16, 4, 8)).permuted((0, 2, 1, 3))
    keys = View.compact((1, 16, 4, 8)).permuted((0, 2, 3, 1))
    layout = layout_of(queries, keys, (1, 4, 16, 16))
    assert layout.lhs == Matrix(False, 32, 8) and layout.rhs == Matrix(True, 32, 8)
    assert (layout.m, layout.n, layout.k, layout.batch) == (16, 16, 8, 4)


def test_two_axes_of_a_batch_that_lie_one_after_another_are_one() -> None:
    layout = layout_of(View.compact((2, 3, 5, 7)), View.compact((2, 3, 7, 4)), (2, 3, 5, 4))
    assert layout.batch == 6 and len(layout.offsets) == 1


def test_a_batch_without_one_stride_takes_several_calls() -> None:
    layout = layout_of(View.compact((2, 1, 5, 7)), View.compact((3, 7, 4)), (2, 3, 5, 4))
    assert layout.batch * len(layout.offsets) * layout.m == 2 * 3 * 5


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_tensors_without_elements_are_not_taken(shape: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedLayout, match="no elements"):
        layout_of(View.compact(shape), View.compact((shape[1], 2)), (shape[0], 2))
