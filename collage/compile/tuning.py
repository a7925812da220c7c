"""Tuning the kernels of native backends before they are measured, when the user asked for it (MetaSchedule).

Which kernels a network will need is known only after the search, and the search needs their costs. The kernels of the
cover with the fewest native partitions are tuned: those are what the backend alone would run. Smaller partitions that a
mixed cover cuts out keep their schedule rules, unless they are among them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from collage.backends.base import Backend
from collage.compile.rewrite import apply
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.progress import Reporter


def tune_kernels(
    module: Any,
    graph: DataflowGraph,
    backends: Mapping[str, Backend],
    threads: int,
    cover_of: Callable[[Collection[str]], Sequence[CandidatePartition]],
    reporter: Reporter,
) -> None:
    """Tune what has no tuning record yet, for those backends that were made with `tune_trials`.

    Parameters
    ----------
    module, graph
        The network.
    backends
        By name.
    threads
        That the kernels will run on.
    cover_of
        Names of backends -> the cover of fewest partitions that these have alone, in the order of execution.
    reporter
        Of progress, kernel by kernel.

    Raises
    ------
    RecordsError
        The tuning records cannot be written.
    """
    for name, backend in backends.items():
        if backend.tune_trials > 0:
            reporter.stage("tuning kernels")
            partitioned = apply(module, graph, cover_of([name]), backends)
            backend.tune([partitioned], threads, lambda line: reporter.step(line, 0))
