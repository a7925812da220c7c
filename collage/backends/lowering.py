"""Lowering: what TVM does with a partitioned module, for one target.

Native partitions become kernels, and everything else becomes the virtual machine's form. A native backend says how
(`Backend.lowering`): `collage.backends.tvm.lower` is the CPU's way, `collage.backends.cuda.lower` CUDA's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from collage.errors import CollageError


@dataclass(frozen=True)
class Linker:
    """What makes a library for another machine of what was compiled for it.

    Attributes
    ----------
    triple
        Of the machine, as "aarch64-linux-gnu".
    command
        A cross compiler; "" where there is none: then TVM links on the machine itself, and gets an archive of objects.
    """

    triple: str
    command: str

    @property
    def suffix(self) -> str:
        """How the names of files end that it makes."""
        return ".so" if self.command else ".tar"

    def require_able(self, path: Path) -> None:
        """Check that it can write such a file.

        Raises
        ------
        CollageError
            It cannot: a library needs a cross compiler, and TVM's runtime loads nothing else.
        """
        if path.suffix == ".tar" or (path.suffix == ".so" and self.command):
            return
        if path.suffix == ".so":
            raise CollageError(
                f"{path}: there is no linker for {self.triple} here (such as {self.triple}-g++): install one, or write "
                "OUT.tar, which TVM links where it is loaded"
            )
        raise CollageError(f"{path}: what is for a board is a library, OUT.so, or an archive of objects, OUT.tar")

    def export(self, executable: Any, path: Path) -> None:
        """Write an executable of TVM to a file, an archive where its name ends with ".tar".

        Raises
        ------
        RuntimeError
            It cannot be linked.
        """
        options = {} if path.suffix == ".tar" else {"cc": self.command}
        executable.export_library(str(path), **options)


@dataclass(frozen=True)
class Lowering(ABC):
    """Lowering for one target.

    Attributes
    ----------
    target
        That kernels are compiled for.
    tuning_records
        Folder of MetaSchedule's records; None without.
    linker
        Of another machine that it is for; None of this one.
    """

    target: tvm.target.Target
    tuning_records: str | None = None
    linker: Linker | None = None

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
