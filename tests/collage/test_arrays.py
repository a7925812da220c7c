"""Arrays come back from files as what they were."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

from collage.arrays import read_array, with_type, write_arrays


def test_every_type_comes_back(tmp_path: Path) -> None:
    dtypes = ("float16", "float32", "float64", "int8", "uint8", "int64", "bool", ml_dtypes.bfloat16)
    written = [np.arange(6).reshape(2, 3).astype(dtype) for dtype in dtypes]
    written.append(np.asarray(1.5, ml_dtypes.bfloat16))
    for array, path in zip(written, write_arrays(written, tmp_path, "input"), strict=True):
        found = read_array(path)
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


def test_an_archive_of_them_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.asarray([1.5, -2.0], ml_dtypes.bfloat16))
    with np.load(tmp_path / "a.npz") as loaded:
        found = with_type(loaded["x"])
    assert found.dtype == ml_dtypes.bfloat16 and found.tolist() == [1.5, -2.0]
