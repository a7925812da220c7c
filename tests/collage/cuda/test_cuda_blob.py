"""Blobs of CUDA partitions: what is packed comes out again, here and in C++; what is not whole is refused."""

from __future__ import annotations

import emulated
import ml_dtypes
import numpy as np
import pytest
import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime import blob

pytestmark = pytest.mark.emulation

TENSORS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.ones((5,), np.float16),
    "brain": np.asarray([[1.5, -2.0]], ml_dtypes.bfloat16),
    "scalar": np.asarray(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
    "transposed": np.arange(6.0).reshape(2, 3).T,
}


def test_header_and_tensors_come_out_as_they_went_in() -> None:
    header, tensors = blob.unpack(blob.pack({"op": "matmul", "list": [1, 2], "alpha": 0.1}, TENSORS))
    assert (header["op"], header["list"], header["alpha"]) == ("matmul", [1, 2], 0.1)
    assert set(tensors) == set(TENSORS)
    for name, array in TENSORS.items():
        assert tensors[name].dtype == array.dtype and tensors[name].shape == array.shape
        np.testing.assert_array_equal(tensors[name], array)


def test_equal_arguments_give_equal_bytes() -> None:
    first = blob.pack({"a": 1, "b": 2}, TENSORS)
    assert first == blob.pack({"b": 2, "a": 1}, dict(reversed(TENSORS.items())))
    assert first != blob.pack({"a": 1, "b": 3}, TENSORS)


def test_tensors_are_aligned_in_the_data() -> None:
    header, _ = blob.unpack(blob.pack({}, TENSORS))
    assert all(entry["offset"] % blob.ALIGNMENT == 0 for entry in header["tensors"].values())


@pytest.mark.parametrize("broken", [b"", b"CLGBLOB1", b"ONNX" + bytes(200)])
def test_other_bytes_are_refused(broken: bytes) -> None:
    with pytest.raises(CompiledModelError, match="not the blob"):
        blob.unpack(broken)


def test_a_blob_that_was_cut_off_is_refused() -> None:
    whole = blob.pack({}, {"weight": np.ones((10, 10), np.float32)})
    for length in (20, len(whole) - 300):
        with pytest.raises(CompiledModelError, match="truncated"):
            blob.unpack(whole[:length])


def test_the_header_cannot_bring_its_own_table() -> None:
    with pytest.raises(ValueError, match="tensors"):
        blob.pack({"tensors": {}}, {})


def test_cpp_refuses_what_is_not_whole() -> None:
    emulated.load("cublas")
    describe = tvm_ffi.get_global_func("collage.cuda.cublas.describe")
    whole = blob.pack({}, {"weight": np.ones((10, 10), np.float32)})
    with pytest.raises(ValueError, match="not the blob"):
        describe(b"ONNX" + bytes(200))
    for length in (20, len(whole) - 300):
        with pytest.raises(ValueError, match="truncated"):
            describe(whole[:length])
    with pytest.raises(ValueError, match='has no "m"'):
        describe(whole)
