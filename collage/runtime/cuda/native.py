"""The native half of the CUDA engines: finding NVIDIA's headers and libraries, and building the C++ sources once.

Each engine is one C++ source that registers the global function `collage.cuda.<engine>.create(blob, options)`. The
object file goes into every exported model that needs it, so that only the compiling side needs a host compiler and
headers. Nothing is linked against NVIDIA's libraries: the sources look functions up when they are first called
(`partition.h`), in libraries that are loaded here by their full path inside the `nvidia-*` wheels, or by the system's
loader where there is a toolkit.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.native import missing_tool

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class NativeEngine:
    """What one engine is built from and needs.

    Attributes
    ----------
    source: C++ source in this folder.
    headers: header -> package that has it; each is searched in the wheels, then in a CUDA toolkit.
    libraries: shared libraries that it looks functions up in, those that others need first.
    flags: further arguments of the host compiler.
    """

    source: str
    headers: Mapping[str, str]
    libraries: tuple[str, ...]
    flags: tuple[str, ...] = ()


_CUDA_HEADERS = {"cuda_runtime_api.h": "nvidia-cuda-runtime", "crt/host_defines.h": "nvidia-cuda-crt"}

#: Engine -> how its native half is built.
ENGINES: Mapping[str, NativeEngine] = {
    "cublas": NativeEngine(
        "cublas.cc", {"cublasLt.h": "nvidia-cublas", **_CUDA_HEADERS}, ("libcudart.so.13", "libcublasLt.so.13")
    ),
    "cudnn": NativeEngine(
        "cudnn.cc",
        {
            "cudnn_frontend.h": "nvidia-cudnn-frontend",
            "cudnn.h": "nvidia-cudnn-cu13",
            "nvrtc.h": "nvidia-cuda-nvrtc",
            **_CUDA_HEADERS,
        },
        ("libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"),
        ("-O1",),  # the frontend is 20,000 lines of templates, and none of it is in a hot loop
    ),
    "cutlass": NativeEngine("cutlass.cc", _CUDA_HEADERS, ("libcudart.so.13",)),
}


def load(engine: str) -> Callable[..., Any]:
    """The engine's `create(blob: bytes, options: str) -> function`, in this process.

    It is there already when a loaded model carries the engine; otherwise its source is compiled (seconds, once).

    Raises
    ------
    CompiledModelError: it has to be compiled, and headers or a compiler are missing.
    """
    name = f"collage.cuda.{engine}.create"
    create = tvm_ffi.get_global_func(name, allow_missing=True)
    if create is None:
        ctypes.CDLL(_build(engine, None), ctypes.RTLD_GLOBAL)
        create = tvm_ffi.get_global_func(name)
    preload(engine)
    found: Callable[..., Any] = create
    return found


def create(engine: str, blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob`; see `collage.runtime.engines.create`.

    Parameters
    ----------
    options: "device" is the number of the CUDA device, 0 when left out.

    Raises
    ------
    CompiledModelError: the library is not installed, there is no device, or it does not take the partition.
    """
    function: Callable[..., None] = _answer(engine, load(engine), blob, options)
    return function


def ask(engine: str, question: str, blob: bytes, options: Mapping[str, Any]) -> Any:
    """What the engine's global function `collage.cuda.<engine>.<question>(blob, options)` answers, from its JSON.

    Raises
    ------
    CompiledModelError: as `create`.
    """
    load(engine)
    return json.loads(str(_answer(engine, tvm_ffi.get_global_func(f"collage.cuda.{engine}.{question}"), blob, options)))


def _answer(engine: str, function: Callable[..., Any], blob: bytes, options: Mapping[str, Any]) -> Any:
    try:
        return function(blob, json.dumps(dict(options)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"{engine} does not take the partition: {error}") from error


def object_file(engine: str) -> str:
    """Path of the object file that exported models carry. Compiles on first use (seconds), then from the cache.

    Raises
    ------
    CompiledModelError: headers or a compiler are missing.
    """
    return _build(engine, f"{engine}.o")


def require_build(engine: str) -> None:
    """Check that the engine's source can be compiled here: headers, compiler, ninja. Compiles nothing.

    Raises
    ------
    CompiledModelError: something is missing; the message says what.
    """
    include_folders(ENGINES[engine].headers)
    if missing := missing_tool():
        raise CompiledModelError(f"{missing} is not found, which compiles {ENGINES[engine].source}")


def library_version(library: str, function: str) -> int:
    """What the library's own `size_t function(void)` says.

    Raises
    ------
    CompiledModelError: the library cannot be loaded.
    """
    try:
        ask = getattr(ctypes.CDLL(str(library_path(library) or library)), function)
    except (OSError, AttributeError) as error:
        raise CompiledModelError(f"{library} does not load: {error}") from error
    ask.restype = ctypes.c_size_t
    return int(ask())


@cache
def _build(engine: str, output: str | None) -> str:
    from tvm_ffi.cpp import build

    native = ENGINES[engine]
    folders = include_folders(native.headers)
    try:
        return str(
            build(
                f"collage_cuda_{engine}",
                cpp_files=str(_FOLDER / native.source),
                extra_cflags=["-O2", *native.flags],
                extra_include_paths=folders,
                output=output,
            )
        )
    except (OSError, RuntimeError) as error:
        raise CompiledModelError(f"{native.source} cannot be compiled; a C++ compiler and ninja? {error}") from error


@cache
def preload(engine: str) -> None:
    """Load the engine's libraries from the wheels, so that the C++ side finds them by name.

    What is not in a wheel is left to the system's loader; the C++ side says what it does not find.
    """
    for library in ENGINES[engine].libraries:
        path = library_path(library)
        if path is not None:
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


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
    headers: header -> package that has it.

    Raises
    ------
    CompiledModelError: a header is nowhere; the message says which package has it.
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
