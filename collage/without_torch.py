"""TVM without PyTorch, for processes that have no use for it."""

from __future__ import annotations

import importlib
import sys


def import_tvm_without_torch(library: str = "tvm") -> None:
    """Import TVM as where PyTorch is not installed. An `import torch` after that works as ever; its tensors reach TVM
    by DLPack.

    TVM imports PyTorch wherever that is installed (`tvm_ffi` against a clash of symbols seen on Windows, Relax for
    modules with functions in Python), which takes seconds; no setting turns it off.

    Parameters
    ----------
    library
        "tvm", or "tvm_ffi" where nothing is compiled.
    """
    if "torch" in sys.modules or library in sys.modules:
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # makes an import of it fail
    try:
        importlib.import_module(library)
    finally:
        del sys.modules["torch"]
