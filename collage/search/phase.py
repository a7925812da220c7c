"""Phase 3 of RFC 0062: search and coalescing in alternation, and the baselines that the answer is compared with."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from collage import plugins
from collage.backends.base import Backend
from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.search.coalescing import coalesced
from collage.search.partitioning import Partitioning
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher
from collage.search.single_backend import single_backend
from collage.search.tables import CostTable

#: How often what a search put side by side is joined and costed; the next search may put other things side by side.
_COALESCING_ROUNDS = 4


@dataclass(frozen=True)
class Searched:
    """The answer of a search.

    Attributes
    ----------
    partitioning
        The cover that was found.
    problem
        With all candidates that came up.
    """

    partitioning: Partitioning
    problem: SearchProblem


def search(searcher: Searcher, problem: SearchProblem, backends: Mapping[str, Backend]) -> Searched:
    """Phase 3: search and coalesce in alternation, until no union of neighbouring partitions is new.

    Raises
    ------
    NoCoverError
        No cover of finite cost exists.
    """
    found = searcher.search(problem)
    for _ in range(_COALESCING_ROUNDS):
        if problem.latency_table.used:
            break
        unions = coalesced(problem.graph, found, problem.candidates, backends)
        if not unions:
            break
        problem = replace(problem, candidates=CandidateSet([*problem.candidates, *unions]))
        found = searcher.search(problem)
    return Searched(found, problem)


def fewest_partitions(
    searcher: Searcher, graph: DataflowGraph, candidates: CandidateSet, backends: Collection[str]
) -> Sequence[CandidatePartition]:
    """The cover of fewest partitions that some backends have without the others."""
    equal = CostTable(lambda asked: [Cost(1.0)] * len(asked))
    return searcher.search(SearchProblem(graph, candidates.of_backends(backends), equal)).candidates


def single_backend_baselines(problem: SearchProblem, backends: Mapping[str, Backend]) -> dict[str, Partitioning]:
    """Name of a contestant -> the placement on one backend, as far as it goes."""
    alone = single_backend(plugins.load("searchers", "dijkstra"), problem, backends.values())
    return {f"{name} alone": cover for name, cover in alone.items()}


def greedy_loss(searched: Searched) -> float:
    """How much more, relatively, the greedy searcher's placement costs, by the costs that are known; NaN where it finds
    none.
    """
    problem = searched.problem
    known = CandidateSet(c for c in problem.candidates if problem.known(c) is not None)
    try:
        greedy: Partitioning = plugins.load("searchers", "greedy").search(replace(problem, candidates=known))
    except CollageError:  # lazy costing leaves gaps, and greed meets dead ends
        return math.nan
    best = searched.partitioning.cost
    return greedy.cost.seconds / best.seconds - 1.0 if greedy.cost.is_finite and best.is_finite else math.nan
