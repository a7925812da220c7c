"""Runs a CUTLASS partition on a CUDA device, by the kernels that its blob carries.

The function is C++ (`engine.cc`); this side unpacks the kernels, as files in memory that can be loaded, and remembers
which was fastest where there was a choice. Needs neither nvcc nor CUTLASS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from collage.errors import CompiledModelError, last_line
from collage.runtime.cuda import choices
from collage.runtime.cuda.cutlass.libraries import KernelLibrary, split
from collage.runtime.cuda.native import CUDA_HEADERS, CudaEngine
from collage.runtime.engine import Run


class CutlassEngine(CudaEngine):
    """The engine; of its options, "cache" is the folder in which choices are remembered."""

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        header, libraries = split(blob)
        key, folder = header.get("choice_key", ""), Path(options.get("cache") or choices.folder_of(self.name))
        if len(libraries) > 1:
            known = (choices.read(key, folder) or {}).get("kernel")
            libraries = [library for library in libraries if library.name == known] or libraries
        make = self.load()
        kernels = [{"name": x.name, "digest": x.digest, "path": _path(x)} for x in libraries]
        settings = {"device": int(options.get("device", 0)), "kernels": kernels}
        try:
            run: Run = make(blob, json.dumps(settings))
        except (RuntimeError, ValueError) as error:
            raise CompiledModelError(f"{self.name}: {last_line(error)}") from error
        found = self.function("choice")()
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


ENGINE = CutlassEngine("cutlass", Path(__file__).with_name("engine.cc"), CUDA_HEADERS, ("libcudart.so.13",))
