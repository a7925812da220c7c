"""Runs matrix products by cuBLASLt, on the caller's device memory and TVM's stream.

The function is a C++ one (`collage/runtime/cuda/cublas.cc`): no Python runs when it is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.cuda import native


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob` (`collage.backends.cuda.cublas`); see `collage.runtime.engines.create`.

    Parameters
    ----------
    options: "device" is the number of the CUDA device, 0 when left out.

    Raises
    ------
    CompiledModelError: cuBLASLt is not installed, there is no device, or it does not take the product.
    """
    try:
        function: Callable[..., None] = native.load("cublas")(blob, json.dumps(dict(options)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"cublas does not take the product: {error}") from error
    return function


def choice(blob: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """The algorithm that was chosen for a product, and what the proposals took (microseconds).

    As "choice" of the blob's header it is kept from then on, with this version of cuBLASLt.
    """
    native.load("cublas")
    text = tvm_ffi.get_global_func("collage.cuda.cublas.choice")(blob, json.dumps(dict(options)))
    result: dict[str, Any] = json.loads(str(text))
    return result
