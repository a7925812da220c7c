"""Engines of NVIDIA devices in C++, and where NVIDIA's headers and libraries are.

Nothing is linked against NVIDIA's libraries: the sources look functions up when they are first called (`partition.h`),
in libraries that are loaded here by their full path inside the `nvidia-*` wheels, or by the system's loader where there
is a toolkit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

from collage.errors import CompiledModelError
from collage.runtime.native_engine import NativeEngine

#: Header -> package that has it, of what every engine includes.
CUDA_HEADERS: Mapping[str, str] = {"cuda_runtime_api.h": "nvidia-cuda-runtime", "crt/host_defines.h": "nvidia-cuda-crt"}


class CudaEngine(NativeEngine):
    """One engine; its `create` takes the number of the CUDA device as the option "device", 0 when left out.

    Parameters
    ----------
    name
        Of the engine, as it is declared.
    source
        Its C++ source.
    headers
        Header -> package that has it; each is searched in the wheels, then in a CUDA toolkit.
    libraries
        Shared libraries that it looks functions up in, those that others need first.
    flags
        Of the host compiler.
    """

    namespace = "collage.cuda"

    def __init__(
        self,
        name: str,
        source: Path,
        headers: Mapping[str, str],
        libraries: Sequence[str],
        flags: Sequence[str] = ("-O2",),
    ) -> None:
        super().__init__(name, source, flags, lambda: include_folders(headers))
        self.libraries = tuple(libraries)

    def load(self) -> Callable[..., Any]:
        make = super().load()
        preload(self.libraries)
        return make


@cache
def preload(libraries: Sequence[str]) -> None:
    """Load libraries from the wheels, so that the C++ side finds them by name.

    What is not in a wheel is left to the system's loader; the C++ side says what it does not find.
    """
    for library in libraries:
        path = library_path(library)
        if path is not None:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def library_version(library: str, function: str) -> int:
    """What the library's own `size_t function(void)` says.

    Raises
    ------
    CompiledModelError
        The library cannot be loaded.
    """
    try:
        ask = getattr(ctypes.CDLL(str(library_path(library) or library)), function)
    except (OSError, AttributeError) as error:
        raise CompiledModelError(f"{library} does not load: {error}") from error
    ask.restype = ctypes.c_size_t
    return int(ask())


def library_path(library: str) -> Path | None:
    """Where the wheels, or a CUDA toolkit, have a library such as "libcublasLt.so.13"; None when they do not."""
    folders = [*_wheel_folders("lib"), *(root / "lib64" for root in _toolkits())]
    return next((folder / library for folder in folders if (folder / library).is_file()), None)


def is_installed(library: str) -> bool:
    """Whether a library is in a wheel, in a CUDA toolkit, or where the system's loader looks. Loads nothing."""
    if library_path(library) is not None:
        return True
    stem, _, _ = library.removeprefix("lib").partition(".so")
    found = _system_library(stem)
    return found is not None and found.endswith(library)


@cache
def _system_library(stem: str) -> str | None:
    from ctypes.util import find_library

    return find_library(stem)


def include_folders(headers: Mapping[str, str]) -> list[str]:
    """The folders in which the headers lie, each once.

    Parameters
    ----------
    headers
        Header -> package that has it.

    Raises
    ------
    CompiledModelError
        A header is nowhere; the message says which package has it.
    """
    places = [*_wheel_folders("include"), *_own_include_folders(), *(root / "include" for root in _toolkits())]
    folders: dict[str, None] = {}
    for header, package in headers.items():
        found = next((place for place in places if (place / header).is_file()), None)
        if found is None:
            raise CompiledModelError(f"{header} is not found: `pip install {package}`, or install the CUDA toolkit")
        folders[str(found)] = None
    return list(folders)


def _wheel_folders(kind: str) -> list[Path]:
    """The `include` or `lib` folders of the installed `nvidia-*` wheels; those of CUDA 13, which share one, first."""
    found = [folder for place in _namespace("nvidia") for folder in place.glob(f"*/{kind}")]
    return sorted(found, key=lambda folder: (folder.parent.name != "cu13", folder.parent.name))


def _own_include_folders() -> Iterable[Path]:
    """Header-only packages: CUTLASS in its own folder, cuDNN's frontend in the environment's, or beside the packages
    where wheels were unpacked into a folder of `sys.path`.
    """
    for place in _namespace("cutlass_library"):
        yield place / "source" / "include"
    yield Path(sys.prefix) / "include"
    for entry in sys.path:
        if entry:
            yield Path(entry).absolute() / "include"


def _toolkits() -> Iterable[Path]:
    compiler = which("nvcc")
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    found = [Path(compiler).resolve().parent.parent] if compiler else []
    return [*(Path(name) for name in (*named, "/usr/local/cuda") if name), *found]


def _namespace(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
