"""Runs convolutions, pooling, rows and attention by cuDNN, on the caller's device memory and TVM's stream.

The function is a C++ one (`collage/runtime/cuda/cudnn.cc`): no Python runs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.runtime.cuda import choices, native


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The function that runs `blob`; see `collage.runtime.cuda.choices.create`."""
    return choices.create("cudnn", blob, options)


def plans(blob: bytes, device: Mapping[str, Any]) -> dict[str, list[list[str]]]:
    """What cuDNN could run a partition by on a device that need not be there: form -> stages -> names of plans.

    Parameters
    ----------
    device: its properties as cuDNN spells them ("deviceVer", "multiProcessorCount", ...).

    Raises
    ------
    CompiledModelError: cuDNN is not installed, or does not understand the device.
    """
    result: dict[str, list[list[str]]] = native.ask("cudnn", "plans", blob, device)
    return result
