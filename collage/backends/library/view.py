"""View: where the elements of a tensor lie in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """A tensor in memory.

    Attributes
    ----------
    dims
        Extents.
    strides
        The distance of neighbours along each axis, in elements.
    offset
        Where the first element lies, in elements from the start of the memory.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def compact(cls, shape: Sequence[int]) -> View:
        """A tensor whose elements lie in row-major order without gaps."""
        return cls(tuple(shape), compact(shape))

    def permuted(self, axes: Sequence[int]) -> View:
        """The same memory with axis `axes[i]` in place `i`."""
        return View(tuple(self.dims[a] for a in axes), tuple(self.strides[a] for a in axes), self.offset)

    def sliced(self, axis: int, begin: int, extent: int, step: int = 1) -> View:
        """Of the elements along an axis every `step`-th from `begin` on, `extent` of them."""
        dims, strides = list(self.dims), list(self.strides)
        dims[axis], strides[axis] = extent, strides[axis] * step
        return View(tuple(dims), tuple(strides), self.offset + begin * self.strides[axis])


def compact(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie in row-major order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
