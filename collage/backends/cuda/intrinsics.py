"""TVM's tensor-core intrinsics, registered in a second instead of half a minute.

They are written in TVMScript, whose parser looks at the Python source of every frame on the stack. Frames of Python's
own import machinery have no source, and `inspect.getmodule` searches all modules for each of them, thirty thousand
times while `tvm.s_tir.tensor_intrin.cuda` is imported. What it would find is known beforehand: nothing.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import Any
from unittest import mock

_MODULE = "tvm.s_tir.tensor_intrin.cuda"
#: How the file names of frames begin that have no source, such as "<frozen importlib._bootstrap>" and "<ast>".
_NO_FILE = "<"


@cache
def load_intrinsics() -> None:
    """Register the intrinsics in this process; DLight's rule for products would do it, slowly."""
    search = inspect.getmodule

    def getmodule(thing: Any, _filename: str | None = None) -> Any:
        if _filename is not None and _filename.startswith(_NO_FILE):
            return None
        return search(thing, _filename)

    with mock.patch.object(inspect, "getmodule", getmodule):
        import_module(_MODULE)
