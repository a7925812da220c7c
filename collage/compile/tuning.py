"""Tuning the kernels of native backends before they are measured, when the user asked for it (MetaSchedule).

Which kernels a network will need is known only after the search, and the search needs their costs. The kernels of the
placement with the fewest native partitions are tuned: those are what the backend alone would run. Smaller partitions
that a mixed placement cuts out keep their schedule rules, unless they are among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collage.backends.base import Backend
from collage.backends.cuda.native import TVMCudaBackend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.rewrite import apply
from collage.cost import Cost
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.progress import Reporter
from collage.search import CostTable, Searcher, SearchProblem


def tune_kernels(
    module: Any,
    graph: DataflowGraph,
    candidates: CandidateSet,
    backends: Mapping[str, Backend],
    threads: int,
    searcher: Searcher,
    reporter: Reporter,
) -> None:
    """Tune what has no tuning record yet, for those backends that were made with `tune_trials`.

    Raises
    ------
    NoCoverError: the backend cannot run the whole network. RecordsError: the tuning records cannot be written.
    """
    for backend in backends.values():
        if isinstance(backend, (TVMBackend, TVMCudaBackend)) and backend.tune_trials > 0:
            reporter.stage("tuning kernels")
            own = candidates.of_backends([backend.name])
            cover = searcher.search(SearchProblem(graph, own, CostTable(_equal_costs)))
            partitioned = apply(module, graph, cover.candidates, backends)
            backend.tune([partitioned], threads, lambda line: reporter.step(line, 0))


def _equal_costs(candidates: Sequence[CandidatePartition]) -> list[Cost]:
    return [Cost(1.0) for _ in candidates]
