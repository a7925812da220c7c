"""TVM's own code generation for CUDA: the native backend of the device.

Partitions become one kernel each (`collage.backends.cuda.lower`), scheduled from tuning records where there are any
and by DLight's rules where there are none. Kernels are compiled at code generation, by NVRTC, or by nvcc where
TVM_CUDA_COMPILE_MODE says so: what does not compile is found out when a candidate is built. On a machine where TVM's
CUDA runtime does not load, a library holds their source, which is compiled where it is loaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import tvm

from collage.backends.base import Availability, Backend
from collage.backends.cuda.headers import headers_found, missing_headers
from collage.backends.lowering import Lowering
from collage.backends.tvm.native import NativeBackend
from collage.runtime.devices import cuda_exists

if TYPE_CHECKING:
    from collage.backends.tvm.metaschedule import Bench


class TVMCudaBackend(NativeBackend):
    """TVM on a CUDA device; for further parameters see `NativeBackend`.

    Parameters
    ----------
    arch
        Architecture to compile for, such as "sm_90"; None is that of the device. With one, models can be compiled on a
        machine without a device.
    """

    name: ClassVar[str] = "tvm-cuda"
    device: ClassVar[str] = "cuda"
    # GELU by its formula has five operators on its longest path. Every kernel costs, and few sub-graphs are this deep.
    max_depth: ClassVar[int] = 8

    def __init__(
        self,
        arch: str | None = None,
        tune_trials: int = 0,
        tuning_records: str | None = None,
        libraries: Sequence[str | Backend] = (),
    ) -> None:
        super().__init__(tune_trials, tuning_records, libraries)
        self.arch = arch

    def compiles(self) -> Availability:
        if not tvm.runtime.enabled("llvm"):
            return Availability(False, "this build of TVM has no LLVM code generator for the host side")
        if not cuda_exists():
            return Availability(
                False, "TVM finds no CUDA device: it needs NVIDIA's driver and libcudart.so.13 on the loader's path"
            )
        return _compiler()

    def version(self) -> str:
        from collage.runtime.cuda.device import cuda_versions

        return f"{tvm.__version__} {cuda_versions()}"

    def configuration(self) -> dict[str, Any]:
        """The architecture, the compiler and the tuning records, which decide how kernels are made."""
        return {"arch": self.arch, "compiler": compiler_mode(), **super().configuration()}

    def lowering(self, threads: int) -> Lowering:
        from collage.backends.cuda.target import cuda_target

        return CudaLowering(cuda_target(self.arch), self.tuning_records)

    def bench(self, threads: int) -> Bench:
        from collage.backends.cuda.bench import bench_of
        from collage.backends.cuda.target import cuda_target

        return bench_of(cuda_target(self.arch), threads)


class CudaLowering(Lowering):
    """For the CUDA device. TVM asks the current target for the architecture when it calls NVIDIA's compiler."""

    @contextmanager
    def scope(self) -> Iterator[None]:
        with headers_found(), self.target:
            yield

    def kernels(self, module: Any) -> Any:
        from collage.backends.cuda.lower import one_kernel_per_partition

        return one_kernel_per_partition(module, self.target)

    def scheduled(self, module: Any) -> Any:
        from collage.backends.cuda.lower import scheduled_kernels

        return scheduled_kernels(module, self.target, self.tuning_records)

    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        from collage.backends.cuda.lower import lower

        return lower(module, self.target, self.tuning_records, scheduled, graph)

    def baseline(self, module: Any) -> Any:
        from collage.backends.cuda.lower import baseline_module

        return baseline_module(module, self.target)


def compiler_mode() -> str:
    """What TVM compiles kernels with: "nvrtc" or "nvcc"."""
    return os.environ.get("TVM_CUDA_COMPILE_MODE", "nvrtc").lower()


def _compiler() -> Availability:
    """Whether TVM's compiler for kernels is there."""
    if compiler_mode() == "nvrtc":
        if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
            return Availability(
                False, "kernels are compiled by NVRTC: `pip install cuda-bindings`, or set TVM_CUDA_COMPILE_MODE=nvcc"
            )
        missing = missing_headers()
        return Availability(not missing, missing)
    if shutil.which("nvcc") is None:
        return Availability(False, "TVM_CUDA_COMPILE_MODE=nvcc, and there is no nvcc on the path")
    return Availability(True)
