"""What is handed to a model as the tensors of its kernels: in place where that is possible, else copied.

A copy goes to memory that is allocated once per input: fresh pages for every call cost more than the copy. An array
that is given again is not described again: after a network has run, the processor's caches hold none of our own code,
and every line of it takes microseconds.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tvm_ffi

from collage.errors import ModelInputError
from collage.runtime.blob import numpy_dtype
from collage.runtime.tensor_spec import TensorSpec

#: Kernels are compiled for addresses like those of TVM's own memory.
ALIGNMENT = 64
#: DLPack's number for memory of the processor.
_CPU = 1
#: Bytes up to which an array is kept until another one is given.
_KEPT = 1 << 24


class Argument:
    """An input of a model on the CPU, or an output that is written in place.

    Parameters
    ----------
    spec
        What it has to be.
    any_address
        Whether all that use it take any address; else it has to be a multiple of `ALIGNMENT`.
    role
        "input" or "output", for messages.

    Attributes
    ----------
    size
        In bytes.
    """

    def __init__(self, spec: TensorSpec, any_address: bool, role: str = "input") -> None:
        self.spec = spec
        self.role = role
        self._shape = spec.shape
        self._dtype = numpy_dtype(spec.dtype)
        self.size = int(np.prod(spec.shape, dtype=np.int64)) * self._dtype.itemsize
        self._any_address = any_address
        self._staging: Staging | None = None
        self._last: Any = None
        self._last_tensor: Any = None

    def tensor(self, value: Any) -> Any:
        """A tensor on the value's own memory where kernels can use it, else on a copy that the next call overwrites.

        Raises
        ------
        ModelInputError
            The value has another shape or dtype, or is no array at all.
        """
        if value is self._last and value.shape == self._shape and value.dtype == self._dtype:
            return self._last_tensor
        array = self.array(value)
        tensor = self.in_place(array)
        kept = tensor is not None and array is value and self.size <= _KEPT
        self._last, self._last_tensor = (array, tensor) if kept else (None, None)
        if tensor is not None:
            return tensor
        if self._staging is None:
            self._staging = Staging(self.spec)
        return self._staging.filled(array)

    def in_place(self, array: np.ndarray) -> Any:
        """A tensor on the array's memory; None where kernels cannot use it."""
        if not array.flags.carray:  # C-contiguous, aligned to its elements, writeable: else DLPack does not take it
            return None
        try:
            tensor = tvm_ffi.from_dlpack(array, require_alignment=0)
        except (BufferError, TypeError):  # ml_dtypes' types are unknown to NumPy's DLPack
            return None
        return tensor if self._any_address or tensor.data_ptr() % ALIGNMENT == 0 else None

    def array(self, value: Any) -> np.ndarray:
        """The value as an array of the right shape and dtype, without a copy where it is one.

        Raises
        ------
        ModelInputError
            As `tensor`.
        """
        array = value if isinstance(value, np.ndarray) else self._as_array(value)
        if array.shape != self._shape or array.dtype != self._dtype:
            self.check(array.shape, str(array.dtype))
        return array

    def check(self, shape: tuple[int, ...], dtype: str) -> None:
        """Raise ModelInputError where these are not the shape and the dtype that the model takes."""
        if shape != self._shape:
            raise self._refused(f"has shape {list(shape)}, the model takes {list(self._shape)}")
        if dtype != self.spec.dtype:
            raise self._refused(f"has dtype {dtype}, the model takes {self.spec.dtype}")

    def _as_array(self, value: Any) -> np.ndarray:
        if hasattr(value, "__dlpack__"):
            try:
                if self.spec.dtype == "bfloat16" and value.__dlpack_device__()[0] == _CPU:
                    return values_of(tvm_ffi.from_dlpack(value, require_contiguous=True))
                return np.from_dlpack(value)
            except (BufferError, TypeError, RuntimeError, ValueError) as error:
                raise self._refused(f"cannot be read as an array: {error}") from error
        if isinstance(value, (bool, int, float, list, tuple)):
            try:
                return np.asarray(value, dtype=self._dtype)
            except ValueError as error:
                raise ModelInputError(f"{self.role} {self.spec.name}: {error}") from error
        raise ModelInputError(
            f"{self.role} {self.spec.name}: {type(value).__name__} is neither a NumPy array nor a DLPack tensor"
        )

    def _refused(self, reason: str) -> ModelInputError:
        return ModelInputError(f"{self.role} {self.spec.name} {reason}")


class Staging:
    """Memory of the model's own for values that cannot be used where they are; `tensor` is on it."""

    def __init__(self, spec: TensorSpec) -> None:
        allocate = tvm_ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self.tensor = allocate(tvm_ffi.Shape(spec.shape), tvm_ffi.dtype(spec.dtype), tvm_ffi.device("cpu", 0), None)
        self._array = _on_memory(self.tensor, spec.shape, spec.dtype)

    def filled(self, array: np.ndarray) -> Any:
        """The tensor, after the array was copied to it."""
        np.copyto(self._array, array)
        return self.tensor


def values_of(tensor: Any) -> np.ndarray:
    """An array on a tensor's memory; a copy where the type is bfloat16, which NumPy's DLPack does not know.

    Parameters
    ----------
    tensor
        Of tvm-ffi, dense, on the CPU.
    """
    try:
        return np.from_dlpack(tensor)
    except RuntimeError:
        if str(tensor.dtype) != "bfloat16":
            raise
        return _on_memory(tensor, tuple(tensor.shape), "bfloat16").copy()


def _on_memory(tensor: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array on a tensor's memory, which it does not keep."""
    kind = numpy_dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    memory: Any = (ctypes.c_char * size).from_address(tensor.data_ptr() if size else 0)
    return np.frombuffer(memory, dtype=kind).reshape(shape)


def empty(spec: TensorSpec) -> np.ndarray:
    """An array of unspecified content that every kernel can use in place."""
    dtype = numpy_dtype(spec.dtype)
    size = int(np.prod(spec.shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(spec.shape)
