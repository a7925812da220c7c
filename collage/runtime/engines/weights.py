"""Weights on a device other than the first one: brought there once, when a model is loaded.

TVM's virtual machine holds the constants of a model on its first device. Kernels of another device take theirs from
this engine, which gives them all as one tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from collage.runtime.blob import unpack

#: The name of the engine.
ENGINE = "collage.runtime.engines.weights:create"


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[[], list[Any]]:
    """What gives the weights of a blob, numbered from 0, on `options["device"]`."""
    from collage.runtime.devices import device_of, upload

    _, arrays = unpack(blob)
    device = device_of(str(options["device"]))
    there = [upload(arrays[str(number)], device) for number in range(len(arrays))]
    return lambda: there
