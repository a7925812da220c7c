"""Runs an ONNX model by ONNX Runtime on a CUDA device, on the caller's device memory and TVM's stream.

An IO binding names every input's and output's address; what was bound stays bound while addresses do not change. The
session works on the stream that TVM's calls are on, so that nothing has to wait: ONNX Runtime is told so when a session
is made. The default stream, whose handle is 0, would be taken for "make your own"; it has the handle 1 as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.engine import PackageEngine, Run
from collage.runtime.engines.onnxruntime import DTYPES, session_options

_DTYPES: Mapping[str, Any] = {**DTYPES, "tensor(float16)": np.float16}
_PROVIDER = "CUDAExecutionProvider"
#: `cudaStreamLegacy`: the default stream, by a handle that is not 0.
_LEGACY = 1


def create(blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob`; see `collage.runtime.engine.Engine.create`. Tensors are in device memory.

    It starts the work on the current stream and returns; a session is made for each device and stream it is called on,
    the first of them now.
    """
    import onnxruntime as ort

    if _PROVIDER not in ort.get_available_providers():
        raise CompiledModelError(f"the installed onnxruntime has no {_PROVIDER}: `pip install onnxruntime-gpu`")
    made: dict[tuple[int, int], _Bound] = {}

    def bound(device: int) -> _Bound:
        stream = int(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", device))) or _LEGACY
        if (device, stream) not in made:
            made[device, stream] = _Bound(blob, options, device, stream)
        return made[device, stream]

    bound(0)

    def run(*tensors: Any) -> None:
        bound(int(tensors[0].device.index or 0))(tensors)

    return run


class _Bound:
    """A session on one stream, and the addresses that its inputs and outputs are bound to."""

    def __init__(self, blob: bytes, options: Mapping[str, Any], device: int, stream: int) -> None:
        import onnxruntime as ort

        try:
            self._session = ort.InferenceSession(
                blob,
                session_options(int(options["threads"])),
                providers=[(_PROVIDER, provider_options(device, stream, bool(options.get("tf32"))))],
            )
        except Exception as error:  # the bindings raise a dozen unrelated types, all direct children of Exception
            raise CompiledModelError(f"onnxruntime does not take the model: {error}") from error
        if _PROVIDER not in self._session.get_providers():
            raise CompiledModelError(f"onnxruntime could not load its {_PROVIDER}: CUDA or cuDNN libraries are missing")
        self._binding = self._session.io_binding()
        self._run_options = ort.RunOptions()
        # The caller waits, when it wants to, for all that is on its stream.
        self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        ports = [(self._binding.bind_input, info) for info in self._session.get_inputs()]
        ports += [(self._binding.bind_output, info) for info in self._session.get_outputs()]
        self._ports = [
            (bind, info.name, device, np.dtype(_DTYPES[info.type]), tuple(info.shape)) for bind, info in ports
        ]
        self._addresses: list[int] = [0] * len(ports)

    def __call__(self, tensors: tuple[Any, ...]) -> None:
        addresses = [int(tensor.data_ptr()) for tensor in tensors]
        if len(addresses) != len(self._ports):
            raise CompiledModelError(f"the partition takes {len(self._ports)} tensors, {len(addresses)} were given")
        for i, (bind, name, device, dtype, shape) in enumerate(self._ports):
            if addresses[i] != self._addresses[i]:
                bind(name, "cuda", device, dtype, shape, addresses[i])
                self._addresses[i] = addresses[i]
        self._session.run_with_iobinding(self._binding, self._run_options)


def provider_options(device: int, stream: int, tf32: bool) -> dict[str, str]:
    """Settings of the CUDA execution provider; a stream is given by its handle."""
    return {
        "device_id": str(device),
        "user_compute_stream": str(stream),
        "cudnn_conv_algo_search": "EXHAUSTIVE",
        "cudnn_conv_use_max_workspace": "1",
        "use_tf32": "1" if tf32 else "0",
    }


ENGINE = PackageEngine(create, "onnxruntime", "`pip install onnxruntime-gpu`")
