"""From the name of a kind of device, "cpu" or "cuda", to the device that TVM runs on.

Everything that needs the device asks here, and only here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm

from collage.errors import CompiledModelError

KINDS = ("cpu", "cuda")
#: Which of several CUDA devices is used; the first one of those that CUDA_VISIBLE_DEVICES leaves.
_CUDA_DEVICE = 0


def device_of(kind: str) -> tvm.runtime.Device:
    """The device of a kind; of several CPUs, which share their memory, the one of a number ("cpu:1").

    Raises
    ------
    CompiledModelError
        The kind is unknown, or this machine has no such device.
    """
    kind, index = kind_and_index(kind)
    if kind == "cpu":
        return tvm.cpu(index)
    if kind != "cuda":
        raise CompiledModelError(f"there is no kind of device called {kind!r}; known are {', '.join(KINDS)}")
    if not cuda_exists():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = "" if visible is None else f" (CUDA_VISIBLE_DEVICES is {visible!r})"
        raise CompiledModelError(
            f"a CUDA device is needed, and TVM finds none{hint}: it needs NVIDIA's driver (libcuda.so.1) and the CUDA "
            "13 runtime (libcudart.so.13) where the system's loader looks"
        )
    return _cuda()


def kind_and_index(device: str) -> tuple[str, int]:
    """The kind of a device, and which of several it is: "cpu:1" is ("cpu", 1), "cuda" is ("cuda", 0)."""
    kind, _, index = device.partition(":")
    return kind, int(index) if index.isdecimal() else 0


def cuda_exists() -> bool:
    """Whether TVM can use a CUDA device here. Never raises."""
    try:
        return bool(_cuda().exist)
    except Exception as error:  # a broken driver is as good as none, in whatever way TVM says so
        logging.getLogger(__name__).debug("the CUDA device cannot be used: %s", error, exc_info=True)
        return False


def _cuda() -> tvm.runtime.Device:
    return tvm.cuda(_CUDA_DEVICE)


def cuda_name(index: int = _CUDA_DEVICE) -> str:
    """What NVIDIA calls the device of this number; "" where there is none."""
    device = tvm.cuda(index)
    return str(device.device_name) if device.exist else ""


def upload(array: np.ndarray, device: tvm.runtime.Device) -> Any:
    """A tensor on the device that holds a copy of the array."""
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape), device)


def download(tensors: Iterable[Any]) -> list[np.ndarray]:
    """Copies of tensors, wherever they are, as arrays."""
    return [tensor.numpy() for tensor in tensors]


def tensor_on(value: Any, device: tvm.runtime.Device) -> Any:
    """The value as a TVM tensor on its own memory where that is on the device already; None where it is not."""
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
        return None
    kind, index = value.__dlpack_device__()
    if (int(kind), int(index)) != (int(device.dlpack_device_type()), int(device.index)):
        return None
    return value if isinstance(value, tvm.runtime.Tensor) else tvm.runtime.from_dlpack(value)
