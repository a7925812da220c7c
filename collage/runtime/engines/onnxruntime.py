"""Runs an ONNX model by ONNX Runtime, on the caller's buffers.

An IO binding names every input's and output's memory. The virtual machine's memory planning hands out the same buffers
call after call, so a binding is made when an address changes and otherwise only used: one call then costs about 2 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from collage.errors import CompiledModelError

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}
#: Nothing short of a crash is logged: warnings are about the exporter, not the user's model, and errors are raised.
_FATAL = 4


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob`; see `collage.runtime.engines.create`."""
    try:
        session = ort.InferenceSession(
            blob, _session_options(int(options["threads"])), providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
        raise CompiledModelError(f"onnxruntime does not take the model: {error}") from error
    binding = session.io_binding()
    inputs = [(binding.bind_input, port.name, _DTYPES[port.type], port.shape) for port in session.get_inputs()]
    outputs = [(binding.bind_output, port.name, _DTYPES[port.type], port.shape) for port in session.get_outputs()]
    ports = [*inputs, *outputs]
    bound: list[int] = [0] * len(ports)
    run_options = ort.RunOptions()
    run_options.log_severity_level = _FATAL
    run_binding = session.run_with_iobinding

    def rebind(addresses: list[int]) -> None:
        if len(addresses) != len(ports):
            raise CompiledModelError(f"the partition takes {len(ports)} tensors, {len(addresses)} were given")
        for i, (bind, name, dtype, shape) in enumerate(ports):
            if addresses[i] != bound[i]:
                bind(name, "cpu", 0, dtype, shape, addresses[i])
                bound[i] = addresses[i]

    def run(*tensors: Any) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != bound:
            rebind(addresses)
        run_binding(binding, run_options)

    return run


def _session_options(threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = _FATAL
    # Spinning workers of this pool slow the pools of the other backends by up to 45%, and gain nothing here.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
