"""Runs convolutions, pooling, rows and attention by cuDNN, on the caller's device memory and TVM's stream.

The function is a C++ one (`collage/runtime/cuda/cudnn.cc`): no Python runs when it is called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi

from collage.errors import CompiledModelError
from collage.runtime.cuda import blob as blobs
from collage.runtime.cuda import native


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob` (`collage.backends.cuda.cudnn`); see `collage.runtime.engines.create`.

    Its plans are timed now, unless an equal partition was made in this process before or the blob has a choice.

    Parameters
    ----------
    options: "device" is the number of the CUDA device, 0 when left out.

    Raises
    ------
    CompiledModelError: cuDNN is not installed, there is no device, or it has no plan for the partition.
    """
    try:
        function: Callable[..., None] = native.load("cudnn")(blob, json.dumps(dict(options)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"cudnn does not take the partition: {error}") from error
    return function


def choice(blob: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """The plans that were chosen: "form", "plans" (one name per stage), "microseconds", "timed" and "version".

    Raises
    ------
    CompiledModelError: as `create`.
    """
    native.load("cudnn")
    try:
        text = tvm_ffi.get_global_func("collage.cuda.cudnn.choice")(blob, json.dumps(dict(options)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"cudnn does not take the partition: {error}") from error
    result: dict[str, Any] = json.loads(str(text))
    return result


def with_choice(blob: bytes, chosen: Mapping[str, Any]) -> bytes:
    """The blob of a partition that runs these plans wherever this version of cuDNN still has them."""
    header, tensors = blobs.unpack(blob)
    del header["tensors"]
    return blobs.pack({**header, "choice": dict(chosen)}, tensors)


def plans(blob: bytes, device: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """What cuDNN could run a partition by on a device that need not be there: form -> stages -> names of plans.

    Parameters
    ----------
    device: its properties as cuDNN spells them ("deviceVer", "multiProcessorCount", ...).

    Raises
    ------
    CompiledModelError: cuDNN is not installed, or does not understand the device.
    """
    native.load("cudnn")
    try:
        text = tvm_ffi.get_global_func("collage.cuda.cudnn.plans")(blob, json.dumps(dict(device)))
    except (RuntimeError, ValueError) as error:
        raise CompiledModelError(f"cudnn: {error}") from error
    result: dict[str, list[list[str]]] = json.loads(str(text))
    return result
