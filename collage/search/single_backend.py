"""Baselines: the placements on one backend each, which a search has to beat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from collage.backends.base import Backend
from collage.cost.cost import Cost
from collage.errors import NoCoverError
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.search.partitioning import Partitioning
from collage.search.problem import SearchProblem
from collage.search.searcher import Searcher
from collage.search.tables import CostTable


def single_backend(searcher: Searcher, problem: SearchProblem, backends: Iterable[Backend]) -> dict[str, Partitioning]:
    """Backend name -> as few and as large partitions of it as there can be, and native TVM, or whoever comes first,
    for what it does not take. A backend with which there is no cover is left out.

    Candidates that are known to be Invalid are not used; nothing is estimated for it.
    """
    order = sorted(backends, key=lambda b: (b.style != "native", b.priority))
    ranks = {b.name: rank for rank, b in enumerate(order)}
    valid = CandidateSet(c for c in problem.candidates if not _is_invalid(problem, c))
    found: dict[str, Partitioning] = {}
    for name in sorted(ranks):
        greedy = SearchProblem(problem.graph, valid, CostTable(_Weights(name, ranks)), priorities=problem.priorities)
        try:
            cover = searcher.search(greedy)
        except NoCoverError:
            continue
        found[name] = replace(cover, cost=Cost.unknown("greedy"), lower_bound=0.0)
    return found


def _is_invalid(problem: SearchProblem, candidate: CandidatePartition) -> bool:
    known = problem.known(candidate)
    return known is not None and known.is_invalid


@dataclass(frozen=True)
class _Weights:
    """Costs that count partitions of one backend, and before that the nodes that others have to take."""

    backend: str
    ranks: Mapping[str, int]

    def __call__(self, asked: Sequence[CandidatePartition]) -> list[Cost]:
        return [Cost(1.0 if c.backend == self.backend else self._of_other(c)) for c in asked]

    def _of_other(self, candidate: CandidatePartition) -> float:
        return 1e4 * len(candidate.sub_graph.inside) + self.ranks[candidate.backend]
