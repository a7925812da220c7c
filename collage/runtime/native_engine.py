"""Engines that are C++: one source each, compiled by the host compiler once, and loaded.

The source registers the global function `<namespace>.<name>.create(blob, options)`. Exported models carry the object
file, so that only the compiling side needs a compiler and headers. tvm-ffi's builder caches by content.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.engine import Engine, Run
from collage.runtime.native import missing_tool


def include_folder() -> str:
    """The folder of our headers, `host_engine.h` and `blob.h`, which sources include by these names."""
    return str(Path(__file__).parent)


class NativeEngine(Engine):
    """One engine.

    Parameters
    ----------
    name
        Of the engine, as it is declared.
    source
        Its C++ source.
    flags
        Of the compiler.
    headers
        Finds folders of headers, besides ours (`include_folder`); raises CompiledModelError when there are none.
    """

    #: What comes before the engine's name in the names of the functions that its source registers.
    namespace = "collage"

    def __init__(
        self, name: str, source: Path, flags: Sequence[str] = (), headers: Callable[[], list[str]] = lambda: []
    ) -> None:
        self.name = name
        self.source = source
        self.flags = tuple(flags)
        self.headers = headers
        self._built: dict[str | None, str | CompiledModelError] = {}

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        run: Run = self._answer(self.load(), blob, options)
        return run

    def ask(self, question: str, blob: bytes, options: Mapping[str, Any]) -> Any:
        """What the engine's global function `<namespace>.<name>.<question>(blob, options)` answers, from its JSON.

        Raises
        ------
        CompiledModelError
            As `create`.
        """
        self.load()
        return json.loads(str(self._answer(self.function(question), blob, options)))

    def load(self) -> Callable[..., Any]:
        """The engine's `create(blob: bytes, options: str) -> function`, in this process.

        It is there already when a loaded model carries the engine; otherwise its source is compiled.

        Raises
        ------
        CompiledModelError
            It has to be compiled and cannot be.
        """
        make = tvm_ffi.get_global_func(f"{self.namespace}.{self.name}.create", allow_missing=True)
        if make is None:
            ctypes.CDLL(self.library(), ctypes.RTLD_GLOBAL)
            make = self.function("create")
        found: Callable[..., Any] = make
        return found

    def function(self, name: str) -> Callable[..., Any]:
        """A global function that the source registers; the engine has to be loaded."""
        found: Callable[..., Any] = tvm_ffi.get_global_func(f"{self.namespace}.{self.name}.{name}")
        return found

    def library(self) -> str:
        """Path of the shared library for this process. Compiles on first use (half a minute), then from the cache.

        Raises
        ------
        CompiledModelError
            Headers or a compiler are missing, or it fails.
        """
        return self._path(None)

    def object_file(self) -> str:
        """Path of the object file that exported models carry; otherwise as `library`."""
        return self._path(f"{self.name}.o")

    def missing_to_compile(self) -> str:
        """What is missing to compile the source and to run blobs; "" when nothing is. Compiles nothing."""
        if missing := self.missing():
            return missing
        try:
            self.headers()
        except CompiledModelError as error:
            return str(error)
        tool = missing_tool()
        return f"{tool} is not found, which compiles the engine" if tool else ""

    def forget(self) -> None:
        """Build again when asked next: the compiler is another one, or another one's environment."""
        self._built.clear()

    def build_name(self) -> str:
        """The name of what is built."""
        return f"{self.namespace}_{self.name}".replace(".", "_").replace("-", "_")

    def _answer(self, function: Callable[..., Any], blob: bytes, options: Mapping[str, Any]) -> Any:
        try:
            return function(blob, json.dumps(dict(options)))
        except (RuntimeError, ValueError) as error:
            raise CompiledModelError(f"{self.name} does not take the partition: {error}") from error

    def _path(self, output: str | None) -> str:
        if output not in self._built:  # a compiler that fails is not asked again for every candidate
            self._built[output] = self._build(output)
        found = self._built[output]
        if isinstance(found, CompiledModelError):
            raise found
        return found

    def _build(self, output: str | None) -> str | CompiledModelError:
        from tvm_ffi.cpp import build

        try:
            folders = [*self.headers(), include_folder()]
            options = {"extra_cflags": list(self.flags), "extra_include_paths": folders, "output": output}
            return str(build(self.build_name(), cpp_files=str(self.source), **options))
        except CompiledModelError as error:
            return error
        except (OSError, RuntimeError) as error:
            return CompiledModelError(f"{self.source} cannot be compiled; a C++ compiler and ninja? {error}")
