"""CostEstimator and all that it may know: workloads in, costs out (RFC 0062, "CostEstimator").

class ByOperatorCount(CostEstimator):
    def estimate(self, workloads):
        return [Cost(1e-5 * len(w.operators)) for w in workloads]
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from collage.cost.cost import Cost
from collage.cost.transition import Pair, Transition
from collage.graph.description import describe_module, structure_hash
from collage.plugins import Parameterised

if TYPE_CHECKING:
    from collage.backends.base import Backend
    from collage.measure.workers import Workers
    from collage.progress import Reporter
    from collage.records import Record, RecordDatabase
    from collage.records.key import MeasuringProtocol
    from collage.runtime.device_info import DeviceInfo

Tensors = tuple[np.ndarray, ...]

#: Which versions and configurations of a backend a model is trained on: the newest one, and equivalent ones; or all.
Configurations = Literal["newest", "all"]


@dataclass(frozen=True)
class Samples:
    """Real inputs of a workload and the outputs that a correct backend gives for them."""

    inputs: Tensors
    outputs: Tensors


@dataclass(frozen=True)
class Workload:
    """One thing to cost: a sub-graph, as a module of its own, on one backend with one number of threads.

    Attributes
    ----------
    backend
        The backend that would run it.
    structure
        Hash of `description`; equal sub-graphs share it.
    operators
        Operator names in execution order, for people and for features.
    extract
        Makes `module`.
    describe
        Makes `description`.
    composites
        (label, positions in `operators`) of the library patterns inside.
    threads
        Number of threads of the deployment.
    samples
        Gives real inputs and reference outputs; None lets the estimator make legal random ones.
    working_set
        Bytes that a call of the network touches that it is part of (`collage.graph.working_set`): what of them the
        caches hold, it finds there. 0 where that is not known.
    """

    backend: Backend
    structure: str
    operators: tuple[str, ...]
    extract: Callable[[], Any] = field(compare=False)
    describe: Callable[[], dict[str, Any]] = field(compare=False)
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    threads: int = 1
    samples: Callable[[], Samples] | None = field(default=None, compare=False)
    working_set: int = 0

    @cached_property
    def module(self) -> Any:
        """Relax IRModule whose `main` is the sub-graph: one dataflow block, weights bound as constants, no
        annotations.
        """
        return self.extract()

    @cached_property
    def description(self) -> dict[str, Any]:
        """Operators, attributes, shapes, dtypes and edges, as JSON-compatible data (`collage.graph.description`)."""
        return self.describe()

    @classmethod
    def of_module(cls, module: Any, backend: Backend, threads: int = 1) -> Workload:
        """The workload that is a whole module: for collecting data, and for tests."""
        description = describe_module(module)
        return cls(
            backend=backend,
            structure=structure_hash(description),
            operators=tuple(node["op"] for node in description["nodes"]),
            extract=lambda: module,
            describe=lambda: description,
            threads=threads,
        )

    @property
    def label(self) -> str:
        """A short name for progress lines and tables."""
        names = [name.removeprefix("relax.").removeprefix("nn.") for name in self.operators]
        text = "+".join(names[:4]) + (f"+{len(names) - 4} more" if len(names) > 4 else "")
        return f"{self.backend.name} {text}"


class CostEstimator(Parameterised, ABC):
    """Gives the latency of workloads. Batched: builds run in parallel, models predict in bulk.

    Attributes
    ----------
    protocol
        How its costs are measured; None is the default of the device, or of an estimator that measures nothing.
    """

    protocol: MeasuringProtocol | None = None

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        """The estimator for one run: itself, unless it uses what the run has to offer.

        `collage.partition` calls this once, before it asks for anything. What the user gave to the constructor stays;
        only what was left open is taken from the run. An estimator that wraps another one binds that too.

        Parameters
        ----------
        records
            The run's database, open until the run ends.
        reporter
            Shows progress to the user.
        """
        return self

    def on(self, workers: Workers) -> CostEstimator:
        """The estimator whose candidates are built and timed by these workers; itself if it measures nothing. An
        estimator that wraps another one passes them on.
        """
        return self

    def session(self) -> AbstractContextManager[None]:
        """A context in which `estimate` keeps resources from call to call, such as processes; they are released when it
        ends. An estimator that wraps another one opens that one's, too.
        """
        return nullcontext()

    @property
    def uses_device(self) -> bool:
        """Whether it may run things on the device; where it does not, transitions are not measured either."""
        return False

    def serves(self, device: DeviceInfo, backends: Collection[str], threads: int) -> bool:
        """Whether it may be chosen for a machine where the user names no estimator (`collage.api.effort`)."""
        return True

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[Pair, Transition] | None:
        """The cost of passing a tensor from one backend's partition to another's, per ordered pair of names. None if
        the estimator has none: they are then looked up in the records, or measured. A pair that is absent is charged
        like the nearest one (`collage.cost.transition.completed`).
        """
        return None

    def copies(self, devices: Sequence[str]) -> Mapping[Pair, Transition] | None:
        """The cost of copying a value from one device to another, per ordered pair of devices. None if the estimator
        has none: copies are then measured.
        """
        return None

    def bounds(self, workloads: Sequence[Workload]) -> list[tuple[float, float]] | None:
        """The interval (low, high), in seconds, in which the cost of each workload is expected, found without running
        anything; (0, inf) where nothing is known. With intervals a searcher may ask `estimate` only for the workloads
        that matter. None if the estimator has no intervals.
        """
        return None

    def knows(self, backend: str) -> bool:
        """Whether it has costs of this backend's partitions; a backend without is left out of the run."""
        return True

    def notes(self, workloads: Collection[Workload]) -> list[str]:
        """Notes for the reader of a plan on the costs of these workloads, which `estimate` gave."""
        return []

    @abstractmethod
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One cost per workload, in their order; Invalid with a reason where a backend fails, Unknown where nothing
        is known.
        """


class Trainable(CostEstimator):
    """An estimator whose model is learned from records: what `collage train` asks for."""

    @classmethod
    @abstractmethod
    def train(
        cls,
        records: Iterable[Record],
        designed: Iterable[Record] = (),
        *,
        seed: int = 0,
        configurations: Configurations = "newest",
    ) -> TrainedModel:
        """Fit a model to records.

        Parameters
        ----------
        records
            Records of networks.
        designed
            Records of designed blocks (`collage records collect --designed`).
        seed
            Seed of random numbers.
        configurations
            "newest": records of each backend's newest version and configuration, and of equivalent ones; "all": any.
        """

    @classmethod
    @abstractmethod
    def calibrate(cls, records: Iterable[Record], model: str | os.PathLike[str] | None = None) -> TrainedModel:
        """Adapt a saved model (None: one that ships with the estimator) to the machine of a few records."""


class TrainedModel(Protocol):
    """What training gives."""

    def save(self, path: str | os.PathLike[str]) -> None: ...

    def errors(self) -> ErrorReport: ...


@dataclass(frozen=True)
class ErrorRow:
    """The errors of a model on one selection of records.

    Attributes
    ----------
    name
        A backend, an operator class, or "all".
    count
        Number of records.
    mape
        Mean of |predicted - measured| / measured.
    within_10, within_20
        Share of records that are predicted within 10% and 20%.
    spearman
        Rank correlation; NaN for fewer than three records.
    coverage
        Share of records inside their interval.
    """

    name: str
    count: int
    mape: float
    within_10: float
    within_20: float
    spearman: float
    coverage: float


@dataclass(frozen=True)
class Prediction:
    """What a model predicts of a record when the record's network is left out.

    Attributes
    ----------
    name
        A backend, or a variant of it that is learned apart.
    network
        Number of the group of records that was left out together; -1 for designed blocks.
    record
        What was measured.
    seconds
        Its latency, as the model takes it.
    predicted, low, high
        Seconds: the prediction, and the ends of its interval.
    """

    name: str
    network: int
    record: Record
    seconds: float
    predicted: float
    low: float
    high: float


class Calibrated(NamedTuple):
    """Intervals of a nominal coverage, and the share of latencies of networks left out that they hold; `name` is a
    backend's, or "all".
    """

    name: str
    nominal: float
    observed: float


@dataclass(frozen=True)
class ErrorReport:
    """Cross-validated errors of a model.

    Attributes
    ----------
    rows
        All records, then those of each backend, then those of each operator class.
    networks
        Number of groups of records that were left out in turn.
    coverage
        Share of latencies that intervals shall hold; NaN where that is not said.
    predictions
        Of each record; () where they are not kept.
    calibration
        Of several nominal coverages; () where that is not known.
    unseen
        Where -> the operators of which there are no records there.
    """

    rows: tuple[ErrorRow, ...]
    networks: int
    coverage: float = math.nan
    predictions: tuple[Prediction, ...] = ()
    calibration: tuple[Calibrated, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


def measured_alike(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """The workloads of each device and working set: an estimator is asked for one of each at a time."""
    found: dict[tuple[str, int], list[Workload]] = {}
    for workload in workloads:
        found.setdefault((workload.backend.device, workload.working_set), []).append(workload)
    return list(found.values()) or [[]]


def estimates(estimator: CostEstimator, workloads: Iterable[Workload]) -> dict[Workload, Cost]:
    """The cost of each different workload, of whatever devices and networks."""
    groups = measured_alike(dict.fromkeys(workloads))
    return {w: cost for own in groups for w, cost in zip(own, estimator.estimate(own), strict=True)}


def device_kind(workloads: Sequence[Workload]) -> str:
    """The kind of device that workloads run on, one for all; "cpu" when there are none."""
    return workloads[0].backend.device if workloads else "cpu"


def working_set_of(workloads: Sequence[Workload]) -> int:
    """The working set of the network that workloads are part of, one for all; 0 when there are none."""
    return workloads[0].working_set if workloads else 0
