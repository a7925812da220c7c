"""TVM's own code generation for the CPU: the native backend. It can run every operator that Relax can lower.

Partitions become one kernel each (`tvm_lower`), scheduled from tuning records where there are any (`tvm_tune`) and by
rules where there are none (`tvm_schedule`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import tvm

from collage.backends.base import Availability, Backend, Style
from collage.backends.tvm.tuning_records import TunedKernel, records_digest
from collage.errors import RecordsError

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule

Progress = Callable[[str], None]


class TVMBackend(Backend):
    """TVM on the CPU.

    Parameters
    ----------
    tune_trials: schedules that MetaSchedule tries per kernel; 0 leaves every kernel to the schedule rules.
    tuning_records: folder of MetaSchedule's JSON database, read and extended; None when there is none.
    """

    name: ClassVar[str] = "tvm"
    style: ClassVar[Style] = "native"
    priority: ClassVar[int] = 30

    def __init__(self, tune_trials: int = 0, tuning_records: str | None = None) -> None:
        self.tune_trials = tune_trials
        self.tuning_records = tuning_records

    def availability(self) -> Availability:
        if not _has_llvm():
            return Availability(False, "this build of TVM has no LLVM code generator; install apache-tvm from PyPI")
        return Availability(True)

    def version(self) -> str:
        return f"{tvm.__version__} LLVM {tvm.target.codegen.llvm_version_major()}"

    def rule(self) -> PartitionRule:
        from collage.rules.trees import native_rule

        return native_rule()

    def configuration(self) -> dict[str, Any]:
        """The tuning records, as a digest of their content."""
        return {"tuning": records_digest(self.tuning_records)}

    def tune(self, modules: Iterable[Any], threads: int, progress: Progress = lambda _: None) -> list[TunedKernel]:
        """Tune the kernels of partitioned modules that have no record yet; nothing when no trials were asked for.

        Raises
        ------
        RecordsError: no folder for the records was given, or it cannot be written.
        """
        if self.tune_trials <= 0:
            return []
        if self.tuning_records is None:
            raise RecordsError("tuning needs a folder for its records: TVMBackend(tuning_records=...)")
        from collage.backends.tvm.lower import cpu_target
        from collage.backends.tvm.tune import tune

        return tune(modules, cpu_target(threads), self.tune_trials, self.tuning_records, progress)


@functools.cache
def _has_llvm() -> bool:
    return bool(tvm.runtime.enabled("llvm"))
