"""The engines of the CUDA backends on host memory, with stand-ins for NVIDIA's libraries (see `emulation`).

Everything else is what runs on a device: the engine's C++ source, its blob, TVM's virtual machine, export and reload.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from collage.runtime import engines
from collage.runtime.native_engine import NativeEngine

HEADERS = Path(__file__).parent / "emulation"


@cache
def load(engine: str, flags: Sequence[str] = ()) -> None:
    """Register `collage.cuda.<engine>.create` and its like in this process, working on the CPU's memory."""
    ctypes.CDLL(_build(engine, tuple(flags), None), ctypes.RTLD_GLOBAL)


def object_file(engine: str, flags: Sequence[str] = ()) -> str:
    """The object that an exported model carries to run emulated."""
    return _build(engine, tuple(flags), f"{engine}_emulated.o")


def _build(engine: str, flags: tuple[str, ...], output: str | None) -> str:
    from tvm_ffi.cpp import build

    native = engines.find(engine)
    assert isinstance(native, NativeEngine)
    # Without optimisation the compiler takes a third of the time.
    flags = ("-O0", "-Wall", "-Werror", "-DCOLLAGE_EMULATE", *flags)
    return str(
        build(
            f"collage_emulated_{engine}",
            cpp_files=str(native.source),
            extra_cflags=list(flags),
            extra_include_paths=[str(HEADERS)],
            output=output,
        )
    )
