"""Runs matrix products by cuBLASLt, on the caller's device memory and TVM's stream.

The function is a C++ one (`collage/runtime/cuda/cublas.cc`): no Python runs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.runtime.cuda import choices


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob` (`collage.backends.cuda.cublas`); see `collage.runtime.cuda.choices.create`."""
    return choices.create("cublas", blob, options)
