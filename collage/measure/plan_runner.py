"""PlanRunner: whole networks in the timing process, each placement compiled once, all runs interleaved."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from collage.backends.base import Backend
from collage.compile.rewrite import apply
from collage.errors import CollageError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.measure.artifact import Artifact
from collage.measure.end_to_end import measure_plans, prepare_plan, prepare_untouched
from collage.measure.job import Parts
from collage.measure.protocol import END_TO_END, Protocol
from collage.measure.runner import Measurement
from collage.progress import Reporter

#: How the names of partitions begin (`collage.compile.rewrite.apply`).
_PARTITION = "collage_"
#: A placement: its candidates in execution order; None is TVM's own build of the whole network.
Placement = Sequence[CandidatePartition] | None


class PlanRunner:
    """Compiles and times placements of one network; what was compiled is kept until `close`.

    Parameters
    ----------
    module, graph
        The canonical module and its graph.
    backends
        Those that may appear, by name.
    threads
        Number of threads of the deployment.
    inputs, expected
        What the network is run on, and what a correct placement gives.
    protocol
        How to time.
    device
        The kind of device that all backends run on.
    """

    def __init__(
        self,
        module: Any,
        graph: DataflowGraph,
        backends: Mapping[str, Backend],
        threads: int,
        inputs: Sequence[np.ndarray],
        expected: Sequence[np.ndarray],
        reporter: Reporter,
        protocol: Protocol = END_TO_END,
        device: str = "cpu",
    ) -> None:
        self.module = module
        self.graph = graph
        self.backends = backends
        self.threads = threads
        self.inputs = inputs
        self.expected = expected
        self.reporter = reporter
        self.protocol = protocol
        self.device = device
        self._folder = tempfile.TemporaryDirectory(prefix="collage-")
        self._built: dict[tuple[CandidatePartition, ...] | None, Artifact | Measurement] = {}
        self._jobs = self._plans = 0

    def measure(self, placements: Mapping[str, Placement], stage: str) -> dict[str, Measurement]:
        """Name of each placement -> its samples, in seconds, taken interleaved; or why there are none."""
        self.reporter.stage(stage, len(placements) + 1)
        measured: dict[str, Measurement] = {}
        artifacts: dict[str, Artifact] = {}
        for name, placement in placements.items():
            self.reporter.step(f"building {name}")
            built = self._build(placement)
            if isinstance(built, Artifact):
                artifacts[name] = built
            else:
                measured[name] = built
        self.reporter.step(f"timing {len(artifacts)} plans")
        self._jobs += 1
        folder = Path(self._folder.name) / f"job{self._jobs}"
        measured.update(measure_plans(artifacts, self.inputs, self.expected, self.protocol, self.threads, folder))
        return measured

    def _build(self, placement: Placement) -> Artifact | Measurement:
        key = None if placement is None else tuple(placement)
        if key not in self._built:
            self._plans += 1
            folder = Path(self._folder.name) / f"plan{self._plans}"
            untouched = partial(prepare_untouched, self.module, device=self.device)
            make = untouched if key is None else partial(self._prepare, key)
            try:
                self._built[key] = make(self.threads, folder)
            except CollageError as error:
                self._built[key] = Measurement(reason=str(error))
        return self._built[key]

    def _prepare(self, placement: Sequence[CandidatePartition], threads: int, folder: Path) -> Artifact:
        partitioned = apply(self.module, self.graph, placement, self.backends)
        return prepare_plan(partitioned, list(self.backends.values()), threads, folder)

    def forget(self, placements: Sequence[Placement]) -> None:
        """Delete what was compiled of placements that will not be run again."""
        for placement in placements:
            built = self._built.pop(None if placement is None else tuple(placement), None)
            if isinstance(built, Artifact):
                shutil.rmtree(Path(built.library).parent)

    def close(self) -> None:
        self._folder.cleanup()

    def __enter__(self) -> PlanRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def partition_seconds(parts: Parts, placement: Sequence[CandidatePartition]) -> tuple[float, ...]:
    """Seconds of each partition inside the whole, host nodes left out, in execution order; () where the calls are not
    those of the placement.

    What else the virtual machine calls is counted with the partition before it (with the first one, if there is none
    before).
    """
    count = sum(candidate.backend != HOST for candidate in placement)
    seconds: list[float] = []
    early = 0.0
    for symbol, elapsed in parts:
        if symbol.startswith(_PARTITION):
            seconds.append(elapsed)
        elif seconds:
            seconds[-1] += elapsed
        else:
            early += elapsed
    if not seconds or len(seconds) != count:
        return ()
    return (seconds[0] + early, *seconds[1:])
