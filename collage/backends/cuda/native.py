"""TVM's own code generation for CUDA: the native backend of the device. It can run every operator that Relax can lower.

Partitions become one kernel each (`collage.backends.cuda.lower`), scheduled from tuning records where there are any
and by DLight's rules where there are none. Kernels are compiled at code generation, by NVRTC, or by nvcc where
TVM_CUDA_COMPILE_MODE says so: what does not compile is found out when a candidate is built. On a machine where TVM's
CUDA runtime does not load, a library holds their source, which is compiled where it is loaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import tvm
from tvm.support import nvcc

from collage.backends.base import Availability, Backend, Style
from collage.backends.tvm.tuning_records import TunedKernel, records_digest
from collage.errors import RecordsError
from collage.runtime.devices import cuda_exists

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule

Progress = Callable[[str], None]


class TVMCudaBackend(Backend):
    """TVM on a CUDA device.

    Parameters
    ----------
    arch: architecture to compile for, such as "sm_90"; None is that of the device. With one, models can be compiled on
        a machine without a device.
    tune_trials: schedules that MetaSchedule tries per kernel; 0 leaves every kernel to DLight's rules.
    tuning_records: folder of MetaSchedule's JSON database, read and extended; None when there is none.
    """

    name: ClassVar[str] = "tvm-cuda"
    style: ClassVar[Style] = "native"
    device: ClassVar[str] = "cuda"
    priority: ClassVar[int] = 30

    def __init__(self, arch: str | None = None, tune_trials: int = 0, tuning_records: str | None = None) -> None:
        self.arch = arch
        self.tune_trials = tune_trials
        self.tuning_records = tuning_records

    def availability(self) -> Availability:
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

    def rule(self) -> PartitionRule:
        from collage.rules.trees import native_rule

        return native_rule()

    def configuration(self) -> dict[str, Any]:
        """The architecture, the compiler and the tuning records, which decide how kernels are made."""
        return {"arch": self.arch, "compiler": compiler_mode(), "tuning": records_digest(self.tuning_records)}

    def tune(self, modules: Iterable[Any], threads: int, progress: Progress = lambda _: None) -> list[TunedKernel]:
        """Tune the kernels of partitioned modules that have no record yet; nothing when no trials were asked for.

        Raises
        ------
        RecordsError: no folder for the records was given, or it cannot be written.
        """
        if self.tune_trials <= 0:
            return []
        if self.tuning_records is None:
            raise RecordsError("tuning needs a folder for its records: TVMCudaBackend(tuning_records=...)")
        from collage.backends.cuda.target import cuda_target
        from collage.backends.cuda.tune import tune

        return tune(modules, cuda_target(self.arch), threads, self.tune_trials, self.tuning_records, progress)


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
        if not _has_headers():
            return Availability(
                False, "NVRTC needs the headers of a CUDA toolkit: set CUDA_PATH to one, or TVM_CUDA_COMPILE_MODE=nvcc"
            )
        return Availability(True)
    if shutil.which("nvcc") is None:
        return Availability(False, "TVM_CUDA_COMPILE_MODE=nvcc, and there is no nvcc on the path")
    return Availability(True)


def _has_headers() -> bool:
    """Whether TVM finds what NVRTC includes. The wheels have it in other places than the toolkit, where it is not
    looked for.
    """
    try:
        root = Path(nvcc.find_cuda_path())
    except RuntimeError:
        return False
    targets = list(root.glob("targets/*/include"))
    folders = [root / "include", *targets, *(folder / "cccl" for folder in targets)]
    wanted = ("cuda_runtime.h", "cuda/std/cstdint")
    return all(any((folder / name).is_file() for folder in folders) for name in wanted)
