"""The native half of a compiled model: building `engine_module.cc` once, and making engine modules with it.

Only the compiling side needs the host compiler: the object file is linked into every exported model, and registers
itself when that model is loaded. tvm-ffi's builder caches by content.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from shutil import which
from typing import Any

import tvm_ffi

from collage.runtime.tvm_library import load_runtime_library

_SOURCE = Path(__file__).with_name("engine_module.cc")


def missing_tool() -> str:
    """The host compiler, or the build tool, that is not on the path; "" when both are."""
    return next((tool for tool in (os.environ.get("CXX", "c++"), "ninja") if which(tool) is None), "")


@cache
def object_file() -> str:
    """Path of the object file that exported models carry. Compiles on first use (seconds), then from the cache."""
    from tvm_ffi.cpp import build

    return str(build("collage_engine_module", cpp_files=str(_SOURCE), output="engine_module.o", extra_cflags=["-O2"]))


@cache
def load_library() -> None:
    """Register the engine module in this process."""
    from tvm_ffi.cpp import build

    load_runtime_library()  # the threads ask it for their number
    ctypes.CDLL(build("collage_engine_module", cpp_files=str(_SOURCE), extra_cflags=["-O2"]), ctypes.RTLD_GLOBAL)


def engine_module(engine: str, blobs: Mapping[str, bytes], options: Mapping[str, Any]) -> Any:
    """A runtime module that serialises into the executable: each symbol runs its blob on `engine`.

    Parameters
    ----------
    engine
        Name in `collage.runtime.engines`.
    blobs
        Symbol -> what the engine makes the function of (an ONNX model, for graph-style backends).
    options
        Given to the engine as JSON when the function is made (`threads`, ...).
    """
    return _module(
        "", [(symbol, engine, json.dumps(dict(options), sort_keys=True), blob) for symbol, blob in blobs.items()]
    )


def metadata_module(metadata: Mapping[str, Any]) -> Any:
    """A runtime module that carries what a loaded model says of itself, as JSON."""
    return _module(json.dumps(dict(metadata), sort_keys=True), [])


def _module(metadata: str, entries: list[tuple[str, str, str, bytes]]) -> Any:
    load_library()
    create = tvm_ffi.get_global_func("collage.runtime.engine_module")
    columns = [list(column) for column in zip(*entries, strict=True)] if entries else [[], [], [], []]
    return create(metadata, *columns)
