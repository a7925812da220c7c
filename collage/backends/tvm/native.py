"""What native backends share: TVM's code generation for a target, with kernels that MetaSchedule may have tuned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.base import Backend, Progress, Style
from collage.backends.lowering import Lowering
from collage.backends.tvm.tuning_records import records_digest
from collage.errors import RecordsError

if TYPE_CHECKING:
    from collage.backends.tvm.metaschedule import Bench
    from collage.rules.base import PartitionRule


class NativeBackend(Backend):
    """TVM on one kind of device. It can run every operator that Relax can lower.

    Parameters
    ----------
    tune_trials
        Schedules that MetaSchedule tries per kernel; 0 leaves every kernel to the schedule rules.
    tuning_records
        Folder of MetaSchedule's JSON database, read and extended; None when there is none.
    """

    style: ClassVar[Style] = "native"
    priority: ClassVar[int] = 30
    makes_blobs: ClassVar[bool] = False

    def __init__(self, tune_trials: int = 0, tuning_records: str | None = None) -> None:
        self.tune_trials = tune_trials
        self.tuning_records = tuning_records

    def rule(self) -> PartitionRule:
        from collage.rules.trees import native_rule

        return native_rule()

    def configuration(self) -> dict[str, Any]:
        """The tuning records, as a digest of their content."""
        return {"tuning": records_digest(self.tuning_records)}

    @abstractmethod
    def lowering(self, threads: int) -> Lowering: ...

    @abstractmethod
    def bench(self, threads: int) -> Bench:
        """MetaSchedule's workers, which build and run kernels as the deployment does."""

    def tune(self, modules: Iterable[Any], threads: int, progress: Progress = lambda _: None) -> None:
        if self.tune_trials <= 0:
            return
        if self.tuning_records is None:
            raise RecordsError(f"tuning needs a folder for its records: {type(self).__name__}(tuning_records=...)")
        from collage.backends.tvm.metaschedule import kernels_of, tune_kernels

        kernels = kernels_of(modules, self.lowering(threads).kernels)
        tune_kernels(kernels, lambda: self.bench(threads), self.tune_trials, self.tuning_records, progress)
