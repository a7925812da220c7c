"""Engines on the CPU that are our own C++: built once for this processor, and loaded.

Such an engine is one source that registers the global function `collage.<name>.create(blob, options)`. Exported models
carry the object file, so that only the compiling side needs a host compiler. What the sources share is in
`host_engine.h`.
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


class HostEngine:
    """One engine.

    Parameters
    ----------
    name: of the engine, and of the library that is built.
    source: its C++ source.
    flags: of the compiler.
    headers: finds folders of headers; raises CompiledModelError when there are none.
    """

    def __init__(
        self, name: str, source: Path, flags: tuple[str, ...], headers: Callable[[], list[str]] | None = None
    ) -> None:
        self.name = name
        self.source = source
        self.flags = flags
        self._headers = headers
        self._built: dict[str | None, str | CompiledModelError] = {}

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
        """The function that runs `blob`; see `collage.runtime.engines.create`.

        Raises
        ------
        CompiledModelError: the engine has to be compiled and cannot be, or it does not take the partition.
        """
        function = f"collage.{self.name}.create"
        make = tvm_ffi.get_global_func(function, allow_missing=True)
        if make is None:
            ctypes.CDLL(self.library(), ctypes.RTLD_GLOBAL)
            make = tvm_ffi.get_global_func(function)
        try:
            run: Callable[..., None] = make(blob, json.dumps(dict(options)))
        except (RuntimeError, ValueError) as error:
            raise CompiledModelError(f"{self.name} does not take the partition: {error}") from error
        return run

    def library(self) -> str:
        """Path of the shared library for this process. Compiles on first use (half a minute), then from the cache.

        Raises
        ------
        CompiledModelError: there is no compiler, or it fails.
        """
        return self._path(None)

    def object_file(self) -> str:
        """Path of the object file that exported models carry; otherwise as `library`."""
        return self._path(f"{self.name}.o")

    def forget(self) -> None:
        """Build again when asked next: the compiler is another one, or another one's environment."""
        self._built.clear()

    def _path(self, output: str | None) -> str:
        if output not in self._built:  # a compiler that fails is not asked again for every candidate
            self._built[output] = self._build(output)
        found = self._built[output]
        if isinstance(found, CompiledModelError):
            raise found
        return found

    def _build(self, output: str | None) -> str | CompiledModelError:
        from tvm_ffi.cpp import build

        from collage.runtime.device_info import describe_device

        # The name says for which processor it is: homes are shared between machines.
        name = f"collage_{self.name}_{describe_device().fingerprint.replace('-', '_')}"
        try:
            folders = self._headers() if self._headers else []
            options = {"extra_cflags": list(self.flags), "extra_include_paths": folders, "output": output}
            return str(build(name, cpp_files=str(self.source), **options))
        except CompiledModelError as error:
            return error
        except (OSError, RuntimeError) as error:
            return CompiledModelError(f"{self.source} cannot be compiled; a C++ compiler and ninja? {error}")


@cache
def compiler() -> str:
    """The host compiler and its version, such as "gcc 12.2.0" or "clang 15.0.6"."""
    asked = [os.environ.get("CXX", "c++"), "--version"]
    line = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    numbers: list[str] = re.findall(r"\d+(?:\.\d+)+", line)
    return f"{'clang' if 'clang' in line else 'gcc'} {numbers[-1] if numbers else line}"
