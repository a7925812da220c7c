"""TVM's own code generation for the CPU: the native backend.

Partitions become one kernel each (`lower`), scheduled from tuning records where there are any (`metaschedule`) and by
rules where there are none (`schedule`). They are for this machine's processor, or for that of a board (`on_board`),
where TVM's runtime is all that they need.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import tvm

from collage.backends.base import Availability
from collage.backends.lowering import Lowering
from collage.backends.tvm.native import NativeBackend
from collage.errors import CollageError

if TYPE_CHECKING:
    from collage.backends.tvm.metaschedule import Bench


class TVMBackend(NativeBackend):
    """TVM on the CPU; for its parameters see `NativeBackend`.

    Attributes
    ----------
    target
        TVM's target of a board; None is this machine's processor.
    """

    name: ClassVar[str] = "tvm"
    target: Mapping[str, Any] | None = None

    def on_board(self, target: Mapping[str, Any]) -> TVMBackend | None:
        if self.libraries:
            return None
        if self.tune_trials:
            raise CollageError("MetaSchedule does not tune kernels of a board: leave --tune-trials out")
        other = copy.copy(self)
        other.target, other.tuning_records = target, None  # records are of this machine
        return other

    def compiles(self) -> Availability:
        if not _has_llvm():
            return Availability(False, "this build of TVM has no LLVM code generator; install apache-tvm from PyPI")
        return Availability(True)

    def version(self) -> str:
        return f"{tvm.__version__} LLVM {tvm.target.codegen.llvm_version_major()}"

    def configuration(self) -> dict[str, Any]:
        found = super().configuration()
        return found if self.target is None else {**found, "target": dict(self.target)}

    def lowering(self, threads: int) -> Lowering:
        from collage.backends.tvm.lower import cpu_target

        if self.target is None:
            return CpuLowering(cpu_target(threads), self.tuning_records)
        from collage.backends.tvm.target import linker_of

        target = tvm.target.Target({**self.target, "num-cores": threads})
        return CpuLowering(target, self.tuning_records, linker_of(self.target))

    def bench(self, threads: int) -> Bench:
        from collage.backends.tvm.bench import bench_of
        from collage.backends.tvm.lower import cpu_target

        return bench_of(cpu_target(threads))


class CpuLowering(Lowering):
    """For one processor."""

    def kernels(self, module: Any) -> Any:
        from collage.backends.tvm.lower import one_kernel_per_partition

        return one_kernel_per_partition(module, self.target)

    def scheduled(self, module: Any) -> Any:
        from collage.backends.tvm.lower import scheduled_kernels

        return scheduled_kernels(module, self.target, self.tuning_records)

    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        from collage.backends.tvm.lower import lower

        return lower(module, self.target, self.tuning_records, scheduled)

    def baseline(self, module: Any) -> Any:
        from collage.backends.tvm.lower import baseline_module

        return baseline_module(module, self.target)


@functools.cache
def _has_llvm() -> bool:
    return bool(tvm.runtime.enabled("llvm"))
