"""Linking: an executable becomes one shared library.

TVM's own export makes an LLVM module of everything that the executable carries, weights included. Here the linker puts
these bytes into the library as they are (docs/TVM.md, "Running").
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi
from tvm.support import cc

#: Libraries that register the engine module must never be unmapped while the process lives.
_OPTIONS = ("-Wl,-z,nodelete",)
#: The file with what the executable carries, and what the linker calls its beginning: a name made of the path as it is
#: given, which without folders is the same in every run.
_BYTES, _BEGIN = "carried.bin", "_binary_carried_bin_start"


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
    objects = [str(Path(file).resolve()) for file in files if Path(file).name != _BYTES]
    folder = next((str(Path(file).parent) for file in files if Path(file).name == _BYTES), None)
    symbol = tvm_ffi.get_global_func("runtime.ModuleImportsBlobName")()
    carried = ["-Wl,--format=binary", _BYTES, "-Wl,--format=default", f"-Wl,--defsym={symbol}={_BEGIN}"]
    cc.create_shared(str(Path(path).resolve()), objects, [*options, *(carried if folder else ())], cwd=folder)
