"""Lowering: what TVM does with a partitioned module, for one target.

Native partitions become kernels, and everything else becomes the virtual machine's form. A native backend says how
(`Backend.lowering`): `collage.backends.tvm.lower` is the CPU's way, `collage.backends.cuda.lower` CUDA's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import tvm


@dataclass(frozen=True)
class Lowering(ABC):
    """Lowering for one target.

    Attributes
    ----------
    target
        That kernels are compiled for.
    tuning_records
        Folder of MetaSchedule's records; None without.
    """

    target: tvm.target.Target
    tuning_records: str | None = None

    @abstractmethod
    def kernels(self, module: Any) -> Any:
        """The module with every `Primitive` Relax function replaced by one unscheduled PrimFunc.

        Raises
        ------
        CodegenError
            TVM cannot make one kernel of a partition; the message names its operators.
        """

    @abstractmethod
    def scheduled(self, module: Any) -> Any:
        """The same with every kernel scheduled, by its tuning record where it has one.

        Raises
        ------
        CodegenError
            TVM cannot make one kernel of a partition, or cannot schedule it.
        """

    @abstractmethod
    def lower(self, module: Any, scheduled: bool, graph: bool) -> Any:
        """Everything before code generation of a partitioned module.

        Parameters
        ----------
        module
            `main`, and the `Primitive` functions that it calls.
        scheduled
            False leaves kernels plain, for references.
        graph
            Whether all that the module calls may be captured in a CUDA graph.

        Raises
        ------
        CodegenError
            TVM cannot make one kernel of a partition.
        """

    @abstractmethod
    def baseline(self, module: Any) -> Any:
        """The same of a canonical module that is not partitioned, by TVM's default pipeline."""

    def scope(self) -> AbstractContextManager[Any]:
        """What code generation has to happen inside of."""
        return nullcontext()
