"""Relax constants as NumPy arrays, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

#: What NumPy can view without a copy.
_PLAIN = frozenset(
    {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)


def value_of(expression: Any) -> np.ndarray | None:
    """The value of a constant, a view where possible; None for any other expression."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return None
    tensor = expression.value
    return np.asarray(np.from_dlpack(tensor) if str(tensor.dtype) in _PLAIN else tensor.numpy())


def constant(value: Any, dtype: str | None = None) -> Any:
    """A constant of exactly this value and dtype: `relax.const` turns 64-bit arrays into 32-bit ones."""
    array = np.asarray(value, dtype=dtype, order="C")
    return relax.const(tvm.runtime.tensor(array), str(array.dtype))
