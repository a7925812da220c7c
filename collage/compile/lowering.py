"""Lowering: what TVM does with a partitioned module, for one kind of device.

Native partitions become kernels, and everything else becomes the virtual machine's form. The CPU's way is
`collage.backends.tvm.lower`, CUDA's is `collage.backends.cuda.lower`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import tvm

from collage.backends.base import Backend


@dataclass(frozen=True)
class Lowering(ABC):
    """Lowering for one target; `tuning_records` is the folder of MetaSchedule's records, None without."""

    target: tvm.target.Target
    tuning_records: str | None = None

    @abstractmethod
    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        """Everything before code generation of a partitioned module.

        Parameters
        ----------
        scheduled: False leaves kernels plain, for references.
        graph: whether all that the module calls may be captured in a CUDA graph.

        Raises
        ------
        CodegenError: TVM cannot make one kernel of a partition.
        """

    def scope(self) -> AbstractContextManager[Any]:
        """What code generation has to happen inside of."""
        return nullcontext()

    @abstractmethod
    def baseline(self, module: Any) -> Any:
        """The same of a canonical module that is not partitioned, by TVM's default pipeline."""


class CpuLowering(Lowering):
    """For this machine's processor."""

    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        from collage.backends.tvm import lower as tvm_lower

        return tvm_lower.lower(module, self.target, self.tuning_records, scheduled)

    def baseline(self, module: Any) -> Any:
        from collage.backends.tvm import lower as tvm_lower

        return tvm_lower.baseline_module(module, self.target)


class CudaLowering(Lowering):
    """For the CUDA device. TVM asks the current target for the architecture when it calls NVIDIA's compiler."""

    def scope(self) -> AbstractContextManager[Any]:
        scope: AbstractContextManager[Any] = self.target
        return scope

    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        from collage.backends.cuda import lower

        return lower.lower(module, self.target, self.tuning_records, scheduled, graph)

    def baseline(self, module: Any) -> Any:
        from collage.backends.cuda import lower

        return lower.baseline_module(module, self.target)


def lowering_of(device: str, threads: int, backends: Sequence[Backend] = ()) -> Lowering:
    """The lowering of a kind of device.

    Parameters
    ----------
    threads: that CPU kernels run on.
    backends: those of the plan; native ones know tuning records, and the architecture to compile for.

    Raises
    ------
    BackendUnavailableError: there is no device to compile for, and no backend names one.
    """
    told = [(getattr(b, "tuning_records", None), getattr(b, "arch", None)) for b in backends if b.style == "native"]
    records = next((folder for folder, _ in told if folder is not None), None)
    if device == "cuda":
        from collage.backends.cuda.target import cuda_target

        return CudaLowering(cuda_target(next((arch for _, arch in told if arch is not None), None)), records)
    from collage.backends.tvm import lower as tvm_lower

    return CpuLowering(tvm_lower.cpu_target(threads), records)
