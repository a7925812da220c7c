"""Engines on the CPU in C++: built once for this processor, and run on the threads of TVM's kernels.

What the sources share is in `host_engine.h` and `blob.h`, which they include by these names.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import tvm_ffi

from collage.runtime.native import load_library
from collage.runtime.native_engine import NativeEngine

#: For the processor that compiles, like TVM's kernels. Nothing depends on the sign of zero or on traps.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math")


class HostEngine(NativeEngine):
    """One engine of this processor; a source of another package finds our headers too."""

    def load(self) -> Callable[..., Any]:
        if tvm_ffi.get_global_func("collage.runtime.parallel_calls", allow_missing=True) is None:
            load_library()  # the threads (thread_pool.h); loaded models carry them
        return super().load()

    def build_name(self) -> str:
        """It says for which processor the engine is: homes are shared between machines."""
        from collage.runtime.device_info import describe_device

        return f"{super().build_name()}_{describe_device().fingerprint.replace('-', '_')}"


@cache
def compiler() -> str:
    """The host compiler and its version, such as "gcc 12.2.0" or "clang 15.0.6"."""
    asked = [os.environ.get("CXX", "c++"), "--version"]
    line = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.partition("\n")[0]
    numbers: list[str] = re.findall(r"\d+(?:\.\d+)+", line)
    return f"{'clang' if 'clang' in line else 'gcc'} {numbers[-1] if numbers else line}"
