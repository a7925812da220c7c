"""Runs a CUTLASS partition on a CUDA device, by the kernels that its blob carries.

The function is C++ (collage/runtime/cuda/cutlass.cc); this side unpacks the kernels, as files in memory that can
be loaded, and remembers which was fastest where there was a choice. Needs neither nvcc nor CUTLASS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError, last_line
from collage.runtime.cuda import choices, native
from collage.runtime.cuda.cutlass_libraries import KernelLibrary, split


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob`; see `collage.runtime.engines.create`.

    Parameters
    ----------
    options: `device`, the index of the CUDA device, 0 without it; `cache`, the folder in which choices are remembered.

    Raises
    ------
    CompiledModelError: the CUDA runtime is missing, or no kernel runs the partition on this device.
    """
    header, libraries = split(blob)
    key, folder = header.get("choice_key", ""), Path(options.get("cache") or choices.folder_of("cutlass"))
    if len(libraries) > 1:
        known = (choices.read(key, folder) or {}).get("kernel")
        libraries = [library for library in libraries if library.name == known] or libraries
    make = native.load("cutlass")
    kernels = [{"name": x.name, "digest": x.digest, "path": _path(x)} for x in libraries]
    settings = {"device": int(options.get("device", 0)), "kernels": kernels}
    try:
        run: Callable[..., None] = make(blob, json.dumps(settings))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"cutlass: {last_line(error)}") from error
    found = tvm_ffi.get_global_func("collage.cuda.cutlass.choice")()
    if found and key:
        choices.write(key, json.loads(str(found)), folder)
    return run


@cache
def _path(library: KernelLibrary) -> str:
    """A file in memory with the library.

    It stays open as long as the process lives: the system's loader takes two libraries for one when they were loaded
    under the same name, and a closed file's number is given to the next.
    """
    descriptor = os.memfd_create(library.name)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(library.code)
    return f"/proc/self/fd/{descriptor}"
