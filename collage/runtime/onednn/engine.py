"""The `onednn` engine: `engine.cc`, compiled with oneDNN's headers, and oneDNN itself, loaded from its wheel.

Both come from PyPI (`onednn-cpu-gomp`, `onednn-devel-cpu-gomp`); where compiled models run, the first is enough. It is
the build for OpenMP, of which the engine takes one thread per call: the pool of TVM's kernels brings them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from collage.errors import CompiledModelError
from collage.runtime.engine import Run
from collage.runtime.host_engine import FLAGS, HostEngine

_LIBRARY = ("onednn-cpu-gomp", "lib/libdnnl.so.3")
_HEADER = ("onednn-devel-cpu-gomp", "include/oneapi/dnnl/dnnl.h")
_INSTALL = "`pip install collage-tvm[onednn]`"


class OneDNNEngine(HostEngine):
    """The engine; oneDNN is loaded before it is asked for functions."""

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        _load()
        return super().create(blob, options)

    def missing(self) -> str:
        return _missing(_LIBRARY)

    def missing_to_compile(self) -> str:
        return _missing(_LIBRARY, _HEADER) or super().missing_to_compile()


def _missing(*wanted: tuple[str, str]) -> str:
    absent = [package for package, name in wanted if _file(package, name) is None]
    return f"{' and '.join(absent)} not installed: {_INSTALL}" if absent else ""


def version() -> str:
    """Of oneDNN's wheel."""
    return distribution(_LIBRARY[0]).version


@cache
def _load() -> None:
    path = _file(*_LIBRARY)
    if path is None:
        raise CompiledModelError(_missing(_LIBRARY))
    try:
        ctypes.CDLL(str(path))  # the engine finds it by its name
    except OSError as error:
        raise CompiledModelError(f"oneDNN cannot be loaded: {error}") from error


def _headers() -> list[str]:
    header = _file(*_HEADER)
    if header is None:
        raise CompiledModelError(f"oneDNN's headers are not installed: {_INSTALL}")
    return [str(header.parents[2])]


def _file(package: str, name: str) -> Path | None:
    """A file that a wheel brought, wherever the environment has such files."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return None
    found = (Path(os.path.abspath(str(file.locate()))) for file in files if file.name == Path(name).name)
    return next((path for path in found if path.as_posix().endswith(f"/{name}") and path.exists()), None)


ENGINE = OneDNNEngine("onednn", Path(__file__).with_name("engine.cc"), FLAGS, _headers)
