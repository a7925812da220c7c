"""What native backends share: TVM's code generation for a target, with kernels that MetaSchedule may have tuned."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from collage import plugins
from collage.backends.base import Availability, Backend, Progress, Style
from collage.backends.lowering import Lowering
from collage.backends.tvm.tuning_records import records_digest
from collage.errors import PluginError, RecordsError

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
    libraries
        Library backends, names or instances, whose patterns its partitions may hold beside kernels of TVM: a partition
        then calls their engines (RFC 0062: a target's `libs`).

    Attributes
    ----------
    max_depth
        Operators on a path of one kernel.
    """

    style: ClassVar[Style] = "native"
    priority: ClassVar[int] = 30
    makes_blobs: ClassVar[bool] = False
    max_depth: ClassVar[int] = 4

    def __init__(
        self, tune_trials: int = 0, tuning_records: str | None = None, libraries: Sequence[str | Backend] = ()
    ) -> None:
        self.tune_trials = tune_trials
        self.tuning_records = tuning_records
        self._libraries = self._found(libraries)

    @property
    def libraries(self) -> Mapping[str, Backend]:
        return self._libraries

    def with_libraries(self, libraries: Sequence[str | Backend]) -> NativeBackend:
        """The same with more libraries."""
        other = copy.copy(self)
        other._libraries = {**self._libraries, **self._found(libraries)}
        return other

    def availability(self) -> Availability:
        """Whether TVM can be used here, and so can the libraries."""
        states = {name: library.availability() for name, library in self._libraries.items()}
        missing = [f"its library {name}: {state.reason}" for name, state in states.items() if not state.available]
        return Availability(False, missing[0]) if missing else self.compiles()

    @abstractmethod
    def compiles(self) -> Availability:
        """Whether TVM's own code generation can be used here."""

    def rule(self) -> PartitionRule:
        from collage.rules.trees import native_rule

        called = {name: library.partition_rule for name, library in self._libraries.items()}
        return native_rule(self.max_depth, called=called)

    def configuration(self) -> dict[str, Any]:
        """The tuning records, as a digest of their content, and what the libraries are and build."""
        from collage.backends.code import configuration_of

        called = {name: [lib.version(), configuration_of(lib)] for name, lib in sorted(self._libraries.items())}
        return {"tuning": records_digest(self.tuning_records), **({"libraries": called} if called else {})}

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

        kernels = kernels_of(modules, self.lowering(threads).kernels, self.name)
        tune_kernels(kernels, lambda: self.bench(threads), self.tune_trials, self.tuning_records, progress)

    def _found(self, wanted: Sequence[str | Backend]) -> dict[str, Backend]:
        libraries: list[Backend] = [plugins.load("backends", library) for library in wanted]
        for library in libraries:
            if library.style != "library" or library.device != self.device or library.is_less_precise:
                raise PluginError(
                    f"{self.name} calls libraries of {self.device} in full precision; {library.name} is a "
                    f"{library.style} backend of {library.device}, in {library.precision}"
                )
        return {library.name: library for library in libraries}
