"""Linking: an executable becomes one shared library.

TVM's own export makes an LLVM module of everything that the executable carries, weights included, which takes ten
seconds for half a gigabyte. Here the linker puts these bytes into the library as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi
from tvm.support import cc

#: Libraries that register the engine module must never be unmapped while the process lives.
_OPTIONS = ("-Wl,-z,nodelete",)
_BYTES = "carried.bin"


def link(executable: Any, path: Path, objects: Sequence[str]) -> None:
    """Write an executable as a shared library.

    Parameters
    ----------
    executable
        TVM's.
    objects
        Object files that are linked with it.

    Raises
    ------
    OSError, RuntimeError
        The file cannot be written, or linking fails.
    """
    if sys.platform == "linux":
        try:
            executable.mod.export_library(
                str(path), addons=list(objects), fpack_imports=_written, fcompile=_linked, options=list(_OPTIONS)
            )
            return
        except RuntimeError:  # a linker that takes object files only
            path.unlink(missing_ok=True)
    executable.export_library(str(path), addons=list(objects), options=list(_OPTIONS))


def _written(module: Any, is_system: bool, prefix: str, folder: str) -> str:
    """The file with the bytes that a module carries."""
    file = Path(folder) / _BYTES
    np.from_dlpack(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module)).tofile(file)
    return str(file)


def _linked(path: str, files: Sequence[str], options: Sequence[str]) -> None:
    """Link object files, and the bytes under the name by which TVM finds them."""
    given = [str(Path(file).resolve()) for file in files if Path(file).name != _BYTES]
    folder, more = None, []
    for file in (file for file in files if Path(file).name == _BYTES):
        # The linker names the bytes by their path as it is given: one without folders is the same in every run.
        folder = str(Path(file).parent)
        symbol = tvm_ffi.get_global_func("runtime.ModuleImportsBlobName")()
        begin = f"_binary_{re.sub('[^A-Za-z0-9]', '_', _BYTES)}_start"
        more = ["-Wl,--format=binary", _BYTES, "-Wl,--format=default", f"-Wl,--defsym={symbol}={begin}"]
    cc.create_shared(str(Path(path).resolve()), given, [*options, *more], cwd=folder)
