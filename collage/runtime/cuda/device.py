"""A CUDA device, as far as the cost of running something on it depends on it.

What TVM's device attributes tell is in the fingerprint; clock frequencies are not, because they change while one looks.
Versions of the driver and of the CUDA runtime change costs as versions of libraries do: backends name them in theirs.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from functools import cache
from typing import Any

from collage.runtime.devices import cuda_exists, device_of

_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
_DRIVER = "libcuda.so.1"


@dataclass(frozen=True)
class CudaDevice:
    """What TVM says of the device.

    Attributes
    ----------
    name
        The maker's, such as "NVIDIA H100 80GB HBM3".
    compute
        Compute capability, such as "9.0".
    multiprocessors
        Number of streaming multiprocessors.
    l2_bytes, memory_bytes
        Sizes of the last-level cache and of the device memory.
    """

    name: str
    compute: str
    multiprocessors: int
    l2_bytes: int
    memory_bytes: int

    @property
    def features(self) -> tuple[str, ...]:
        """For `DeviceInfo.features`: what generated code depends on."""
        return (f"compute {self.compute}", f"l2 {self.l2_bytes} bytes")


def cuda_device() -> CudaDevice:
    """The device that is used.

    Raises
    ------
    CompiledModelError
        There is none.
    """
    device = device_of("cuda")
    return CudaDevice(
        name=str(device.device_name).strip("\0 "),
        compute=str(device.compute_version),
        multiprocessors=int(device.multi_processor_count),
        l2_bytes=int(device.l2_cache_size_bytes),
        memory_bytes=int(device.total_global_memory),
    )


def compute_capability() -> str | None:
    """The compute capability of the device that is used, such as "9.0"; None when there is no device."""
    return str(device_of("cuda").compute_version) if cuda_exists() else None


def cuda_versions() -> str:
    """Versions of the CUDA runtime, and of the CUDA that the driver supports, such as "CUDA 13.0, driver 13.0"."""
    runtime = _version(_RUNTIMES, "cudaRuntimeGetVersion")
    driver = _version((_DRIVER,), "cuDriverGetVersion")
    named = driver_release()
    return f"CUDA {runtime}, driver {driver}" + (f" ({named})" if named else "")


@cache
def ordered_stream() -> int:
    """A stream that the default one waits for, and that waits for it, as CUDA orders streams that do not say otherwise;
    for libraries that may not be given the default stream. 0, which is that, where the CUDA runtime makes none.
    """
    for library in _RUNTIMES:
        try:
            create = ctypes.CDLL(library).cudaStreamCreate
        except (OSError, AttributeError):
            continue
        stream = ctypes.c_void_p()
        if create(ctypes.byref(stream)) == 0:
            return int(stream.value or 0)
    return 0


@cache
def driver_release() -> str:
    """The driver's own version, such as "580.65.06"; "" where NVML's Python package (nvidia-ml-py) is not there."""
    nvml = open_nvml()
    return str(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else ""


@cache
def open_nvml() -> Any:
    """The module `pynvml`, initialised; None where it is not installed or finds no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:  # no driver, or no permission: clocks and releases are then unknown
        logging.getLogger(__name__).debug("NVML cannot be used: %s", error)
        return None
    return pynvml


@cache
def _version(libraries: tuple[str, ...], function: str) -> str:
    for library in libraries:
        try:
            ask = getattr(ctypes.CDLL(library), function)
        except (OSError, AttributeError):
            continue
        number = ctypes.c_int()
        if ask(ctypes.byref(number)) == 0:
            return f"{number.value // 1000}.{number.value % 1000 // 10}"
    return "unknown"
