"""Arrays in files, as `numpy.save` writes them; bfloat16, too, of which NumPy keeps the bytes and forgets the type."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

#: What numpy.load makes of bfloat16.
_NAMELESS = np.dtype("V2")


def write_arrays(arrays: Sequence[np.ndarray], folder: Path, prefix: str) -> tuple[str, ...]:
    """Save arrays as `<prefix><position>.npy`; their paths, for another process."""
    paths = tuple(str(folder / f"{prefix}{position}.npy") for position in range(len(arrays)))
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


def read_array(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in a `.npy` file."""
    return with_type(np.load(path, allow_pickle=False))


def with_type(array: np.ndarray) -> np.ndarray:
    """An array that was loaded, as it was saved."""
    if array.dtype != _NAMELESS:
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)
