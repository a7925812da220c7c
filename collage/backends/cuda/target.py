"""The TVM target of the CUDA device: by its architecture, without a tag.

A tag such as `nvidia/nvidia-h100` is `sm_90a`, for which DLight's check of the version fails: it then schedules
half-precision products for the ordinary cores, without a word. `sm_90` gets the tensor cores.
"""

from __future__ import annotations

import tvm

from collage.errors import BackendUnavailableError
from collage.runtime.cuda.device import compute_capability
from collage.runtime.devices import cuda_exists, device_of

#: Without a device, for compilation only: what all devices of the last ten years have.
_SHARED_MEMORY, _THREADS, _WARP = 49152, 1024, 32
_REGISTERS = 65536


def cuda_target(arch: str | None = None) -> tvm.target.Target:
    """The target of kernels for an architecture.

    Parameters
    ----------
    arch
        Such as "sm_90"; None is that of the device that is used.

    Raises
    ------
    BackendUnavailableError
        No architecture was given, and there is no device to ask.
    """
    chosen = arch or device_arch()
    if chosen is None:
        raise BackendUnavailableError(
            "there is no CUDA device to compile for: name an architecture, as TVMCudaBackend(arch='sm_90')"
        )
    host = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()}
    limits = _limits()
    return tvm.target.Target(
        {
            "kind": "cuda",
            "arch": chosen,
            "max_num_threads": limits[0],
            "max_threads_per_block": limits[0],
            "max_shared_memory_per_block": limits[1],
            "thread_warp_size": limits[2],
            "registers_per_block": _REGISTERS,
        },
        host=tvm.target.Target(host),
    )


def device_arch() -> str | None:
    """The architecture of the device that is used, such as "sm_90"; None when there is no device."""
    compute = compute_capability()
    return None if compute is None else "sm_" + compute.replace(".", "")


def _limits() -> tuple[int, int, int]:
    if not cuda_exists():
        return _THREADS, _SHARED_MEMORY, _WARP
    device = device_of("cuda")
    return int(device.max_threads_per_block), int(device.max_shared_memory_per_block), int(device.warp_size)
