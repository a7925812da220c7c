"""Runs matrix products by cuBLASLt, on the caller's device memory and TVM's stream.

The function is a C++ one (`collage/runtime/cuda/cublas.cc`): no Python runs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.runtime.cuda import choices, native


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob` (`collage.backends.cuda.cublas`); see `collage.runtime.cuda.choices.create`."""
    return choices.create("cublas", blob, options)


def choice(blob: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm that was chosen for a product, and what the proposals took (microseconds).

    As "choice" of the blob's header it is kept from then on, with this version of cuBLASLt.

    Raises
    ------
    CompiledModelError: as `create`.
    """
    result: dict[str, Any] = native.ask("cublas", "choice", blob, options)
    return result
