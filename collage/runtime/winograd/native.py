"""Building the `winograd` engine once for this processor, and loading it.

The source registers the global function `collage.winograd.create(blob, options)`. Exported models carry the object
file, so that only the compiling side needs a host compiler.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError

_SOURCE = Path(__file__).with_name("engine.cc")
_CREATE = "collage.winograd.create"
#: For the processor that compiles, like TVM's kernels. Nothing depends on the sign of zero or on traps.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob`; see `collage.runtime.engines.create`.

    Raises
    ------
    CompiledModelError: the engine has to be compiled and there is no compiler, or it does not take the partition.
    """
    make = tvm_ffi.get_global_func(_CREATE, allow_missing=True)
    if make is None:
        ctypes.CDLL(library(), ctypes.RTLD_GLOBAL)
        make = tvm_ffi.get_global_func(_CREATE)
    try:
        run: Callable[..., None] = make(blob, json.dumps(dict(options)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"winograd does not take the partition: {error}") from error
    return run


def library() -> str:
    """Path of the shared library for this process. Compiles on first use (half a minute), then from the cache.

    Raises
    ------
    CompiledModelError: there is no compiler, or it fails.
    """
    return _built(None)


def object_file() -> str:
    """Path of the object file that exported models carry; otherwise as `library`."""
    return _built("engine.o")


@cache
def compiler() -> str:
    """The host compiler and its version, such as "gcc 12.2.0" or "clang 15.0.6"."""
    asked = [os.environ.get("CXX", "c++"), "--version"]
    line = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    numbers: list[str] = re.findall(r"\d+(?:\.\d+)+", line)
    return f"{'clang' if 'clang' in line else 'gcc'} {numbers[-1] if numbers else line}"


def _built(output: str | None) -> str:
    found = _build(output)
    if isinstance(found, CompiledModelError):
        raise found
    return found


@cache
def _build(output: str | None) -> str | CompiledModelError:
    """The path, or why there is none: a compiler that fails is not asked again for every candidate."""
    from tvm_ffi.cpp import build

    from collage.device import describe

    # The name says for which processor it is: homes are shared between machines.
    name = f"collage_winograd_{describe().fingerprint.replace('-', '_')}"
    try:
        return str(build(name, cpp_files=str(_SOURCE), extra_cflags=list(_FLAGS), output=output))
    except (OSError, RuntimeError) as error:
        return CompiledModelError(f"{_SOURCE.name} cannot be compiled; a C++ compiler and ninja? {error}")
