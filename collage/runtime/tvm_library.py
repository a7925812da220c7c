"""TVM's runtime library, without the rest of TVM.

`import tvm` loads its compiler too: a second, and a quarter of a gigabyte. A model on the CPU needs tvm-ffi and two
libraries, `tvm_runtime` and `tvm_runtime_extra`, which has what some kernels call (sorting, for one). Where `tvm` is
imported as well, before or after, both share them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tvm_ffi.libinfo import load_lib_ctypes

from collage.errors import CompiledModelError


@cache
def load_runtime_library() -> None:
    """Load the library into this process, its symbols global, as `import tvm` does.

    Raises
    ------
    CompiledModelError
        TVM is not installed, or its library cannot be loaded.
    """
    if "tvm" in sys.modules:
        return
    spec = find_spec("tvm")
    folders = [Path(folder) / "lib" for folder in (spec.submodule_search_locations or [])] if spec else []
    if override := os.environ.get("TVM_LIBRARY_PATH"):
        folders.insert(0, Path(override))
    try:
        load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", extra_lib_paths=folders)
    except (RuntimeError, OSError) as error:
        raise CompiledModelError(f"TVM's runtime library cannot be loaded: {error}") from error
    with suppress(RuntimeError, OSError):  # other builds of TVM have it all in one
        load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_GLOBAL", extra_lib_paths=folders)
