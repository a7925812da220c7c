"""CompiledModel: a compiled network, loaded from the one file that holds all of it, ready to be called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

from collage.errors import CompiledModelError, ModelInputError
from collage.runtime import engines
from collage.runtime.devices import device_of, tensor_on
from collage.runtime.library_file import is_cut_off
from collage.runtime.tensor_spec import TensorSpec
from collage.runtime.threads import configure_threads

#: Kernels are compiled for buffers aligned like TVM's own; a NumPy array that is not gets copied once.
_ALIGNMENT = 64


class CompiledModel:
    """A network that runs. Call it with one array per input, in the order of the graph's inputs.

    NumPy arrays and anything that speaks DLPack are taken; float arrays are used without a copy when they are
    contiguous and aligned. One output comes back as an array, several as a tuple; they are DLPack-capable NumPy
    arrays that own their memory.

    A model for an accelerator copies arrays there and results back. When one of the inputs is a tensor on that device
    already (of TVM, PyTorch, CuPy, ...), such inputs are used in place, and the results are TVM tensors that stay
    there: `torch.from_dlpack` takes them. They are written on TVM's current stream, and not waited for.

    Attributes
    ----------
    device
        The kind of device that it runs on, "cpu" or "cuda".
    inputs, outputs
        What it takes and gives, in order.
    metadata
        What the compiling side wrote into the file: versions, threads, and the plan.
    """

    def __init__(self, module: Any, metadata: dict[str, Any]) -> None:
        self.metadata = metadata
        self.device = str(metadata.get("device", "cpu"))
        self._device = device_of(self.device)
        self.inputs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in metadata["inputs"])
        self.outputs = tuple(TensorSpec(name, tuple(shape), dtype) for name, shape, dtype in metadata["outputs"])
        configure_threads(metadata["threads"])
        engines.register()
        self.vm = VirtualMachine(module, self._device)
        self._main = self.vm["main"]

    def __call__(self, *inputs: Any) -> Any:
        """Run the network once.

        Raises
        ------
        ModelInputError
            Wrong number of inputs, wrong shape, or wrong dtype.
        """
        matched = self._matched(inputs)
        if self.device != "cpu":
            return self._call_on_device(matched)
        results = self.run([self.to_tensor(value, info) for value, info in matched])
        arrays = tuple(np.from_dlpack(r) for r in results)
        return arrays[0] if len(arrays) == 1 else arrays

    def _call_on_device(self, matched: Sequence[tuple[Any, TensorSpec]]) -> Any:
        there = [tensor_on(value, self._device) for value, _ in matched]
        for tensor, (_, info) in zip(there, matched, strict=True):
            if tensor is not None:
                _check(tuple(int(d) for d in tensor.shape), str(tensor.dtype), info)
        tensors = [
            tensor if tensor is not None else self.to_tensor(value, info).copyto(self._device)
            for tensor, (value, info) in zip(there, matched, strict=True)
        ]
        results = self.run(tensors)
        if all(tensor is None for tensor in there):
            results = [result.numpy() for result in results]
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """Run on TVM tensors that are known to fit; the outputs are TVM tensors. No checks, no copies."""
        result = self._main(*tensors)
        return [result] if isinstance(result, tvm.runtime.Tensor) else list(result)

    def _matched(self, inputs: Sequence[Any]) -> list[tuple[Any, TensorSpec]]:
        if len(inputs) != len(self.inputs):
            expected = ", ".join(str(info) for info in self.inputs)
            raise ModelInputError(f"the model takes {len(self.inputs)} inputs ({expected}), {len(inputs)} were given")
        return list(zip(inputs, self.inputs, strict=True))

    @staticmethod
    def to_tensor(value: Any, info: TensorSpec) -> Any:
        """A TVM tensor on the value's memory where that is possible, on a copy where it is not."""
        if isinstance(value, tvm.runtime.Tensor):
            _check(tuple(int(d) for d in value.shape), str(value.dtype), info)
            return value
        array = value if isinstance(value, np.ndarray) else _as_array(value, info)
        _check(array.shape, str(array.dtype), info)
        aligned = array.ctypes.data % _ALIGNMENT == 0
        if array.flags.c_contiguous and array.flags.writeable and aligned and array.size and array.dtype != np.bool_:
            return tvm.runtime.from_dlpack(array)
        return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(info.shape))


def _as_array(value: Any, info: TensorSpec) -> np.ndarray:
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    if isinstance(value, (bool, int, float, list, tuple)):
        try:
            return np.asarray(value, dtype=info.dtype)
        except ValueError as error:
            raise ModelInputError(f"input {info.name}: {error}") from error
    raise ModelInputError(f"input {info.name}: {type(value).__name__} is neither a NumPy array nor a DLPack tensor")


def _check(shape: tuple[int, ...], dtype: str, info: TensorSpec) -> None:
    if shape != info.shape:
        raise ModelInputError(f"input {info.name} has shape {list(shape)}, the model takes {list(info.shape)}")
    if dtype != info.dtype:
        raise ModelInputError(f"input {info.name} has dtype {dtype}, the model takes {info.dtype}")


def load(path: str | Path) -> CompiledModel:
    """Load a model that `CompiledModel`'s compiling side exported.

    Raises
    ------
    CompiledModelError
        The file is missing, is not a compiled model, or needs a run-time library that is not installed.
    """
    file = Path(path)
    if not file.is_file():
        raise CompiledModelError(f"{file}: {'is a directory' if file.is_dir() else 'no such file'}")
    engines.register()
    try:
        if is_cut_off(file):
            raise CompiledModelError(f"{file}: its end is missing: copy or compile the model again")
        module = tvm.runtime.load_module(str(file.resolve()))
        describe = module.get_function("collage_metadata", query_imports=True)
    except (RuntimeError, ValueError, AttributeError, OSError) as error:
        raise CompiledModelError(f"{file}: not a model compiled by Collage ({_first_line(error)})") from error
    metadata = json.loads(describe())
    engines.require(metadata["engines"])
    return CompiledModel(module, metadata)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
