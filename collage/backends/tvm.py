"""TVM's own code generation for the CPU: the native backend. It can run every operator that Relax can lower.

Partitions become one kernel each (`tvm_lower`), scheduled from tuning records where there are any (`tvm_tune`) and by
rules where there are none (`tvm_schedule`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import tvm

from collage.backends.base import Availability, Backend, Style
from collage.backends.source_digest import source_digest

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule


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
        """What decides how kernels are made: our own rules, and the tuning records, each as a digest of its content."""
        from collage.backends.tvm_tune import records_digest

        return {"code": source_digest("backends/tvm*.py"), "tuning": records_digest(self.tuning_records)}


@functools.cache
def _has_llvm() -> bool:
    return bool(tvm.runtime.enabled("llvm"))
