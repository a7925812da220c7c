"""CandidatePartition and CandidateSet: what the rules find and the searchers choose from (RFC 0062)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from collage.graph.index_set import IndexSet
from collage.graph.quotient import Quotient
from collage.graph.sub_graph import SubGraph

#: The name under which nodes that stay on the virtual machine appear: tuples, projections, shape operations, views.
HOST = "host"


@dataclass(frozen=True)
class CandidatePartition:
    """A sub-graph and the backend that would run it: the unit of search and of measurement.

    Attributes
    ----------
    sub_graph
        The nodes inside.
    backend
        Name of the backend, or `HOST`.
    composites
        (label, nodes) of each library pattern inside, disjoint; of graph-style backends the products that are in eight
        bits (`collage.annotations.precision.INT8`); empty for native ones.
    """

    sub_graph: SubGraph
    backend: str
    composites: tuple[tuple[str, IndexSet], ...] = ()

    def __str__(self) -> str:
        labels = "".join(f" {label}" for label, _ in self.composites)
        return f"{self.backend}{self.sub_graph.inside!r}{labels}"


def fits(candidate: CandidatePartition, device: str) -> bool:
    """Whether a candidate of a backend of this device has no node that has to be computed elsewhere."""
    nodes = candidate.sub_graph.graph.nodes
    return all(nodes[i].place in ("", device) for i in candidate.sub_graph.inside)


def covered(candidates: Iterable[CandidatePartition]) -> IndexSet:
    """The nodes that are in some candidate."""
    bits = 0
    for candidate in candidates:
        bits |= candidate.sub_graph.inside.bits
    return IndexSet.from_bits(bits)


class CandidateSet(Sequence[CandidatePartition]):
    """Distinct candidates, indexed by their first node."""

    def __init__(self, candidates: Iterable[CandidatePartition]) -> None:
        unique = dict.fromkeys(candidates)
        self._all = sorted(
            unique, key=lambda c: (c.sub_graph.inside.first, len(c.sub_graph.inside), c.sub_graph.inside.bits)
        )
        self._by_first: dict[int, list[CandidatePartition]] = {}
        for candidate in self._all:
            self._by_first.setdefault(candidate.sub_graph.inside.first, []).append(candidate)

    def starting_at(self, index: int) -> Sequence[CandidatePartition]:
        """The candidates whose first node is `index`."""
        return self._by_first.get(index, ())

    def of_backends(self, backends: Collection[str]) -> CandidateSet:
        """Those of some backends, and of the host."""
        return CandidateSet(c for c in self._all if c.backend in backends or c.backend == HOST)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._all[index]

    def __iter__(self) -> Iterator[CandidatePartition]:
        return iter(self._all)


def quotient_of(chosen: Sequence[CandidatePartition]) -> Quotient:
    """Return the quotient graph of disjoint candidates; group i is candidate i."""
    return Quotient([c.sub_graph.inside for c in chosen], [c.sub_graph.boundary.inputs for c in chosen])
