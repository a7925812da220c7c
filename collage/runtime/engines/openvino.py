"""Runs an ONNX model by OpenVINO's CPU plug-in, on the caller's buffers.

This speaks to the library's C interface through ctypes: a call with buffers that are bound already costs 3 µs, through
the Python interface 7 µs. Tensors that wrap the caller's memory are kept by address, because the virtual machine's
memory planning hands out the same few buffers call after call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from collage.errors import CompiledModelError
from collage.runtime.engine import PackageEngine, Run
from collage.runtime.threads import default_threads

_Handle = ctypes.c_void_p
#: `ov_element_type_e` of int64, which the CPU plug-in computes in int32.
_I64 = 10
#: Magnitude up to which int64 inputs are taken. The backend admits only additions of small constants to them, so that
#: nothing computed from inputs within it leaves int32.
_INT64_LIMIT = 2**30
#: How many addresses are remembered per input or output.
_REMEMBERED = 64


class _Shape(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)))


#: Functions whose arguments ctypes cannot guess; pointers are 64 bits wide.
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "ov_core_create": (_Handle,),
    "ov_core_read_model_from_memory_buffer": (_Handle, ctypes.c_char_p, ctypes.c_size_t, _Handle, _Handle),
    "ov_compiled_model_create_infer_request": (_Handle, _Handle),
    "ov_compiled_model_inputs_size": (_Handle, _Handle),
    "ov_compiled_model_outputs_size": (_Handle, _Handle),
    "ov_compiled_model_input_by_index": (_Handle, ctypes.c_size_t, _Handle),
    "ov_compiled_model_output_by_index": (_Handle, ctypes.c_size_t, _Handle),
    "ov_port_get_element_type": (_Handle, _Handle),
    "ov_const_port_get_shape": (_Handle, _Handle),
    "ov_tensor_create_from_host_ptr": (ctypes.c_int, _Shape, _Handle, _Handle),
    "ov_infer_request_set_input_tensor_by_index": (_Handle, ctypes.c_size_t, _Handle),
    "ov_infer_request_set_output_tensor_by_index": (_Handle, ctypes.c_size_t, _Handle),
    "ov_infer_request_infer": (_Handle,),
}
_DESTRUCTORS = (
    "ov_core_free",
    "ov_model_free",
    "ov_compiled_model_free",
    "ov_infer_request_free",
    "ov_tensor_free",
    "ov_output_const_port_free",
)


@cache
def _library() -> ctypes.CDLL:
    """The C interface of the installed openvino package."""
    spec = find_spec("openvino")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = sorted(file for root in roots for file in (root / "libs").glob("*openvino_c.*") if file.suffix != ".lib")
    if not found:
        raise CompiledModelError("the openvino package has no C library: `pip install --force-reinstall openvino`")
    library = ctypes.CDLL(str(found[0]))
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    for name in _DESTRUCTORS:
        getattr(library, name).argtypes = (_Handle,)
        getattr(library, name).restype = None
    library.ov_get_last_err_msg.restype = ctypes.c_char_p
    return library


#: Lines of the library's messages that say where it noticed, not what is wrong.
_NOISE = ("Exception from", "Check '", "FrontEnd API failed", "Model wasn't", "Summary", "To facilitate")


def _check(status: int, doing: str) -> None:
    if status:
        message = (_library().ov_get_last_err_msg() or b"").decode(errors="replace")
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith(_NOISE)] or lines
        raise CompiledModelError(f"openvino: {doing}: {' '.join(telling)[:400] or f'status {status}'}")


def _made(name: str, *arguments: Any, doing: str) -> Any:
    """Call a function of the C interface that writes a handle to its last argument, and return the handle."""
    handle = _Handle()
    _check(getattr(_library(), name)(*arguments, ctypes.byref(handle)), doing)
    return handle


def create(blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob`; see `collage.runtime.engine.Engine.create`."""
    network = _Network(blob, int(options["threads"]), str(options.get("precision", "f32")))
    infer, request, bound, wide = network.infer, network.request, network.bound, network.wide

    def run(*tensors: Any) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != bound:
            network.bind(addresses)
        for index in wide:
            _check_range(tensors[index])
        status = infer(request)
        if status:
            _check(status, "running")

    return run


def _check_range(tensor: Any) -> None:
    values = np.from_dlpack(tensor)
    if values.max() > _INT64_LIMIT or values.min() < -_INT64_LIMIT:
        raise CompiledModelError(
            f"openvino computes int64 in int32, and an input has values beyond ±{_INT64_LIMIT}: "
            "compile the model without the openvino backend"
        )


class _Network:
    """A compiled model with one request, and with a core of its own: when that goes, OpenVINO ends the threads that it
    keeps for the next model. A process that is forked later would wait for them for ever. TBB's threads are shared.

    Attributes
    ----------
    infer, request
        `infer(request)` runs the network and returns a status.
    bound
        The addresses of all inputs and then all outputs that the next `infer` works on.
    wide
        The positions of int64 inputs.
    """

    def __init__(self, blob: bytes, threads: int, precision: str = "f32") -> None:
        library = _library()
        self.infer = library.ov_infer_request_infer
        self._core = _made("ov_core_create", doing="starting")
        model = _made(
            "ov_core_read_model_from_memory_buffer", self._core, blob, len(blob), None, doing="reading the partition"
        )
        self._compiled = _compile(self._core, model, threads, precision)
        library.ov_model_free(model)
        self.request = _made(
            "ov_compiled_model_create_infer_request", self._compiled, doing="making an inference request"
        )
        inputs, outputs = (self._ports(kind) for kind in ("input", "output"))
        set_input, set_output = (
            getattr(library, f"ov_infer_request_set_{k}_tensor_by_index") for k in ("input", "output")
        )
        self._ports_in_order = [
            *((set_input, i, element, shape) for i, (element, shape) in enumerate(inputs)),
            *((set_output, i, element, shape) for i, (element, shape) in enumerate(outputs)),
        ]
        self._tensors: list[dict[int, Any]] = [{} for _ in self._ports_in_order]
        self.bound = [0] * len(self._ports_in_order)
        self.wide = [i for i, (element, _) in enumerate(inputs) if element == _I64]

    def _ports(self, kind: str) -> list[tuple[int, _Shape]]:
        """Element type and shape of each input or output."""
        library, count, ports = _library(), ctypes.c_size_t(), []
        size = getattr(library, f"ov_compiled_model_{kind}s_size")
        _check(size(self._compiled, ctypes.byref(count)), f"counting {kind}s")
        for index in range(count.value):
            port = _made(f"ov_compiled_model_{kind}_by_index", self._compiled, index, doing=f"reading {kind} {index}")
            element, shape = ctypes.c_int(), _Shape()
            _check(library.ov_port_get_element_type(port, ctypes.byref(element)), f"reading {kind} {index}")
            _check(library.ov_const_port_get_shape(port, ctypes.byref(shape)), f"reading {kind} {index}")
            library.ov_output_const_port_free(port)
            ports.append((element.value, shape))
        return ports

    def bind(self, addresses: list[int]) -> None:
        """Make the request work on these addresses."""
        if len(addresses) != len(self.bound):
            raise CompiledModelError(f"the partition takes {len(self.bound)} tensors, {len(addresses)} were given")
        for i, (set_tensor, index, element, shape) in enumerate(self._ports_in_order):
            if addresses[i] != self.bound[i]:
                tensor = self._tensor(i, element, shape, addresses[i])
                _check(set_tensor(self.request, index, tensor), f"binding tensor {i}")
                self.bound[i] = addresses[i]

    def _tensor(self, position: int, element: int, shape: _Shape, address: int) -> Any:
        known = self._tensors[position]
        if address not in known:
            if len(known) >= _REMEMBERED:
                # The request keeps what it uses; the rest is only wrappers.
                for tensor in known.values():
                    _library().ov_tensor_free(tensor)
                known.clear()
            known[address] = _made(
                "ov_tensor_create_from_host_ptr", element, shape, address, doing=f"wrapping tensor {position}"
            )
        return known[address]

    def __del__(self) -> None:
        library = _library()
        for known in getattr(self, "_tensors", []):
            for tensor in known.values():
                library.ov_tensor_free(tensor)
        if hasattr(self, "request"):
            library.ov_infer_request_free(self.request)
        if hasattr(self, "_compiled"):
            library.ov_compiled_model_free(self._compiled)
        if hasattr(self, "_core"):
            library.ov_core_free(self._core)


def _compile(core: Any, model: Any, threads: int, precision: str) -> Any:
    """Compile for the CPU: in float32 unless bfloat16 was asked for, one request at a time.

    Each thread is bound to a processor where there are as many as processors: beside a busy process, unbound ones are
    put where their caller is. Fewer are not: OpenVINO would bind those of every process to the same processors.
    """
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
        "ENABLE_CPU_PINNING": "YES" if 1 < default_threads() <= threads else "NO",
    }
    pairs = [ctypes.c_char_p(text.encode()) for pair in settings.items() for text in pair]
    compiled = _Handle()
    compile_model = _library().ov_core_compile_model
    status = compile_model(
        core, model, ctypes.c_char_p(b"CPU"), ctypes.c_size_t(len(pairs)), ctypes.byref(compiled), *pairs
    )
    _check(status, "compiling the partition")
    return compiled


ENGINE = PackageEngine(create, "openvino", "`pip install collage-tvm[openvino]`", any_address=True)
