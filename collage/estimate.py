"""All that an estimator may know: workloads in, costs out (RFC 0062, "CostEstimator").

class ByOperatorCount(CostEstimator):
    def estimate(self, workloads):
        return [Cost(1e-5 * len(w.operators)) for w in workloads]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from collage.cost import Cost
from collage.graph.description import describe_module, structure_hash
from collage.plugins import Parameterised

if TYPE_CHECKING:
    from collage.backends.base import Backend

Tensors = tuple[np.ndarray, ...]

#: The reason of a cost that nobody measured.
PREDICTED = "predicted"


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
    backend: the backend that would run it.
    structure: hash of `description`; equal sub-graphs share it.
    operators: operator names in execution order, for people and for features.
    extract: makes `module`.
    describe: makes `description`.
    composites: (label, positions in `operators`) of the library patterns inside.
    threads: number of threads of the deployment.
    samples: gives real inputs and reference outputs; None lets the estimator make legal random ones.
    """

    backend: Backend
    structure: str
    operators: tuple[str, ...]
    extract: Callable[[], Any] = field(compare=False)
    describe: Callable[[], dict[str, Any]] = field(compare=False)
    composites: tuple[tuple[str, tuple[int, ...]], ...] = ()
    threads: int = 1
    samples: Callable[[], Samples] | None = field(default=None, compare=False)

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
    """Gives the latency of workloads. Batched: builds run in parallel, models predict in bulk."""

    @property
    def uses_device(self) -> bool:
        """Whether it may run things on the device; where it does not, transitions are not measured either."""
        return False

    def transitions(self, backends: Sequence[str], threads: int) -> Mapping[tuple[str, str], float] | None:
        """Seconds for handing a tensor from one backend's partition to another's, per ordered pair of names; None where
        the estimator has nothing to say about it, and the records of this machine are asked.
        """
        return None

    def bounds(self, workloads: Sequence[Workload]) -> list[tuple[float, float]] | None:
        """Between which seconds the cost of each workload is expected to lie, found without running anything; (0, inf)
        where nothing is known. None where the estimator has no intervals. A searcher may then ask `estimate` only for
        those that matter.
        """
        return None

    def knows(self, backend: str) -> bool:
        """Whether it can tell costs of this backend's partitions at all; where it cannot, the backend is left out."""
        return True

    def notes(self) -> list[str]:
        """What is to be known of the costs that were told so far; a plan says it."""
        return []

    @abstractmethod
    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One cost per workload, in their order; Invalid with a reason where a backend fails, Unknown where nothing
        is known.
        """


def device_kind(workloads: Sequence[Workload]) -> str:
    """The kind of device that workloads run on, one for all; "cpu" when there are none."""
    return workloads[0].backend.device if workloads else "cpu"
