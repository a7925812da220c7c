"""Runs an ONNX model by ONNX Runtime, on the caller's buffers.

An IO binding names every input's and output's memory. The virtual machine's memory planning hands out the same few
buffers call after call, so wrappers are kept by address: a call costs 2 µs, and 1 µs more when its buffers change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.engine import PackageEngine, Run
from collage.runtime.threads import processors

DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_,
}
#: Nothing short of a crash is logged: warnings are about the exporter, not the user's model, and errors are raised.
_FATAL = 4
#: How many addresses are remembered per input or output.
_REMEMBERED = 64


def create(blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob`; see `collage.runtime.engine.Engine.create`."""
    import onnxruntime as ort

    try:
        session = ort.InferenceSession(
            blob,
            session_options(int(options["threads"]), bool(options.get("spin"))),
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
        raise CompiledModelError(f"onnxruntime does not take the model: {error}") from error
    if any(not isinstance(extent, int) for info in session.get_outputs() for extent in info.shape):
        return _allocating(session)
    binding = session.io_binding()
    ports = [
        *(_Port(binding.bind_ortvalue_input, info) for info in session.get_inputs()),
        *(_Port(binding.bind_ortvalue_output, info) for info in session.get_outputs()),
    ]
    bound = [0] * len(ports)
    # Without run options: passing any costs 30 µs per call.
    run_bound = session.run_with_iobinding

    def rebind(tensors: Sequence[Any], addresses: list[int]) -> None:
        if len(addresses) != len(ports):
            raise CompiledModelError(f"the partition takes {len(ports)} tensors, {len(addresses)} were given")
        for i, port in enumerate(ports):
            if addresses[i] != bound[i]:
                port.bind(port.name, port.value(addresses[i], tensors[i].shape))
                bound[i] = addresses[i]

    def run(*tensors: Any) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != bound:
            rebind(tensors, addresses)
        run_bound(binding)

    return run


def _allocating(session: Any) -> Run:
    """Outputs whose shapes depend on data are ONNX Runtime's own memory."""
    names = [info.name for info in session.get_inputs()]

    def run(*tensors: Any) -> Any:
        if len(tensors) != len(names):
            raise CompiledModelError(f"the partition takes {len(names)} tensors, {len(tensors)} were given")
        found = session.run(None, {n: np.from_dlpack(tensor) for n, tensor in zip(names, tensors, strict=True)})
        results = [tvm_ffi.from_dlpack(np.ascontiguousarray(each).reshape(each.shape)) for each in found]
        return results[0] if len(results) == 1 else results

    return run


class _Port:
    """An input or output, and the wrappers of the addresses that it was bound to; they own no memory."""

    def __init__(self, bind: Callable[[str, Any], None], info: Any) -> None:
        self.bind = bind
        self.name: str = info.name
        self._dtype = np.dtype(DTYPES[info.type])
        self._values: dict[int, Any] = {}

    def value(self, address: int, shape: Sequence[int]) -> Any:
        """The OrtValue on the memory at `address`; the shape is the same in all calls, and not always in the model."""
        import onnxruntime as ort

        if address not in self._values:
            if len(self._values) >= _REMEMBERED:
                self._values.clear()
            size = int(np.prod(shape, dtype=np.int64)) * self._dtype.itemsize
            memory: Any = (ctypes.c_char * size).from_address(address)
            array = np.frombuffer(memory, dtype=self._dtype).reshape(tuple(shape))
            self._values[address] = ort.OrtValue.ortvalue_from_numpy(array)
        return self._values[address]


def session_options(threads: int, spin: bool = False) -> Any:
    """One request at a time, on threads that spin for more work where nobody else needs the processors."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _FATAL
    # Spinning workers of this pool slow the pools of other backends by up to 45%; alone, sleeping costs up to 25%.
    if spin:
        bind_workers(options, threads)
    else:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def bind_workers(options: Any, threads: int) -> None:
    """Give each worker a processor where there is one for each thread, as ONNX Runtime does if it chooses the number.

    Unbound ones took 1.02 to 1.58 times as long on a quiet machine (docs/TVM.md). The caller stays where it is.
    """
    _, *others = processors()
    if others and threads == len(others) + 1:
        affinities = ";".join(str(processor + 1) for processor in others)  # they are counted from 1
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)


ENGINE = PackageEngine(create, "onnxruntime", "`pip install collage-tvm[onnxruntime]`", any_address=True)
