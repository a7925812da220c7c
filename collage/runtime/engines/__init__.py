"""Engines: what runs the blobs of graph-style partitions inside a compiled model.

An engine makes a function of a blob (an ONNX model) once, when the compiled model is loaded. TVM's virtual machine
calls it in destination-passing style: the tensors of the inputs, then those of the outputs. The engine works on their
memory directly; nothing is copied in or out.

This side of Collage runs in deployed processes: it imports the engine's own library, NumPy and tvm-ffi, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError

Run = Callable[..., None]

#: Engine name -> (module that implements `create(blob, options)`, library that it needs, how to install it).
_ENGINES: Mapping[str, tuple[str, str, str]] = {
    "openvino": ("collage.runtime.engines.openvino", "openvino", "`pip install collage-tvm[openvino]`"),
    "onnxruntime": ("collage.runtime.engines.onnxruntime", "onnxruntime", "`pip install collage-tvm[onnxruntime]`"),
    "onednn": ("collage.runtime.engines.onednn", "tvm_ffi", "`pip install collage-tvm[onednn]`"),
    "winograd": ("collage.runtime.engines.winograd", "tvm_ffi", "`pip install collage-tvm`"),
    "cublas": ("collage.runtime.engines.cublas", "tvm_ffi", "`pip install collage-tvm[cuda]`"),
    "cudnn": ("collage.runtime.engines.cudnn", "tvm_ffi", "`pip install collage-tvm[cuda]`"),
    "cutlass": ("collage.runtime.engines.cutlass", "tvm_ffi", "`pip install collage-tvm[cuda]`"),
    "onnxruntime-cuda": ("collage.runtime.engines.onnxruntime_cuda", "onnxruntime", "`pip install onnxruntime-gpu`"),
    "tensorrt": ("collage.runtime.engines.tensorrt", "tensorrt", "`pip install tensorrt`, of NVIDIA's package index"),
}


def create(engine: str, blob: bytes, options: Mapping[str, Any]) -> Run:
    """The function that runs `blob`.

    Parameters
    ----------
    engine: "openvino", "onnxruntime", or "package.module:function" for an engine of a third party's backend.
    blob: a serialised ONNX model with static shapes.
    options: `threads`, the number of threads of the deployment.

    Returns
    -------
    A function of the input tensors and then the output tensors, in the model's order; it writes the outputs. They are
    compact (C-contiguous) tensors in CPU memory, as TVM's virtual machine hands them out, of the model's shapes and
    dtypes.

    Raises
    ------
    CompiledModelError: the engine is unknown, its library is not installed, or it does not take the model.
    """
    require([engine])
    module, _, function = _named(engine)
    run: Run = getattr(import_module(module), function)(blob, options)
    return run


def modules_of(engine: str) -> list[str]:
    """The module that implements an engine; none where there is no such engine."""
    return [_named(engine)[0]] if ":" in engine or engine in _ENGINES else []


def _named(engine: str) -> tuple[str, str, str]:
    return engine.partition(":") if ":" in engine else (_ENGINES[engine][0], ":", "create")


def require(engines: Iterable[str]) -> None:
    """Check that the engines' libraries are installed.

    Raises
    ------
    CompiledModelError: an engine is unknown, or its library is missing; the message says how to install it.
    """
    for engine in engines:
        if ":" in engine:
            library = engine.partition(".")[0].partition(":")[0]
            install = f"install the package that has {engine}"
        elif engine in _ENGINES:
            _, library, install = _ENGINES[engine]
        else:
            raise CompiledModelError(f"the model needs the engine {engine!r}; known are {', '.join(sorted(_ENGINES))}")
        if find_spec(library) is None:
            raise CompiledModelError(f"the model needs {library}, which is not installed: {install}")


def register() -> None:
    """Let compiled models find the engines when they are loaded into this process."""

    def create_engine(engine: str, blob: bytes, options: str) -> Run:
        return create(str(engine), bytes(blob), json.loads(str(options)))

    tvm_ffi.register_global_func("collage.runtime.create_engine", create_engine, override=True)
