"""Coalescing: neighbouring partitions of one backend are joined, as new candidates.

The rules cannot list every union of what a backend takes. A search shows which unions matter: those of partitions that
it put side by side. The latency of a union is not the sum of its parts', so a union is only *proposed* here. It is
costed and searched like any candidate. Searching and coalescing alternate until nothing new is proposed.

The quotient graph, whose nodes are the chosen candidates, shows which unions are legal: a set of candidates can be
replaced by its union exactly when no path in the quotient leaves the set and re-enters it. Then the cover stays
acyclic, and the union is convex. The backend's own tree of rules shows which unions the backend allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet, quotient_of
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.quotient import DisjointSets
from collage.graph.sub_graph import SubGraph, SubGraphConfig
from collage.rules.base import PartitionRule, PartitionSpec
from collage.rules.combinators import (
    FilterPartitionRule,
    OnlyValidPartitionRule,
    PrimitivePartitionRule,
    UnionPartitionRule,
)
from collage.rules.combine import CombinePartitionRule
from collage.rules.combiners import CombinerRule
from collage.rules.regions import levels_of
from collage.search.partitioning import Partitioning

#: Of the partitions that read one value, each is paired with so many that come after it, less one.
MAX_SIBLINGS = 8


def coalesced(
    graph: DataflowGraph, partitioning: Partitioning, known: CandidateSet, backends: Mapping[str, Backend]
) -> list[CandidatePartition]:
    """Unions of a partitioning's partitions that are not among the known candidates.

    Proposed are, per backend, all pairs of partitions that an edge connects, directly or through nodes on the host;
    all pairs that read one value, where at most `MAX_SIBLINGS` do (of more, those near each other in execution order);
    and the maximal runs, of partitions that edges connect, and of those that share values as well. A union takes in
    what lies between its parts: further partitions of the backend, and nodes on the host that the backend takes. With
    e edges between partitions, which read r inputs in all, there are at most e + 7 r pairs, and two runs per partition.

    Parameters
    ----------
    partitioning
        What a searcher answered: a cover, in execution order, with an acyclic quotient.
    known
        Every candidate so far, with those found Invalid.
    backends
        Name -> backend, at least those of the partitioning.

    Returns
    -------
    Convex candidates that their backend's rule allows, each of which leaves the quotient acyclic when it replaces its
    parts; distinct, in a deterministic order. Composites are those of the parts; what is in eight bits has one label.
    """
    neighbours = _Neighbours(partitioning.candidates)
    seen, takes = set(known), _nodes_taken(known)
    found: list[CandidatePartition] = []
    for name in sorted({candidate.backend for candidate in partitioning.partitions}):
        backend = backends[name]
        rule = backend.partition_rule
        for parts in neighbours.legal_unions(name, takes.get(name, 0)):
            union = _union(graph, name, parts)
            if union not in seen and _allows(rule, PartitionSpec(rule, name), backend, union, parts):
                seen.add(union)
                found.append(union)
    return found


def _nodes_taken(known: Iterable[CandidatePartition]) -> dict[str, int]:
    """Backend -> bit set of the nodes that some candidate of it holds."""
    takes: dict[str, int] = {}
    for candidate in known:
        takes[candidate.backend] = takes.get(candidate.backend, 0) | candidate.sub_graph.inside.bits
    return takes


def _union(graph: DataflowGraph, backend: str, parts: Sequence[CandidatePartition]) -> CandidatePartition:
    listed = [c for part in parts for c in part.composites]
    if int8 := reduce(or_, (nodes for label, nodes in listed if label == INT8), IndexSet()):
        listed = [*(c for c in listed if c[0] != INT8), (INT8, int8)]
    composites = sorted(listed, key=lambda c: (c[1].bits, c[0]))
    inside = reduce(or_, (part.sub_graph.inside for part in parts))
    return CandidatePartition(SubGraph(graph, inside), backend, tuple(composites))


class _Neighbours:
    """The chosen candidates and the edges between them; sets of candidates are bit sets of their positions."""

    def __init__(self, chosen: Sequence[CandidatePartition]) -> None:
        self.chosen = chosen
        self.quotient = quotient_of(chosen)
        self.is_host = [candidate.backend == HOST for candidate in chosen]

    def legal_unions(self, backend: str, takes: int) -> Iterator[list[CandidatePartition]]:
        """Parts, in execution order, of each union that leaves the quotient acyclic; each union once.

        `takes`: bit set of the nodes that the backend takes.
        """
        own = [i for i, candidate in enumerate(self.chosen) if candidate.backend == backend]
        allowed = set(own)
        for i, candidate in enumerate(self.chosen):
            if self.is_host[i] and not candidate.sub_graph.inside.bits & ~takes:
                allowed.add(i)
        outside = ~sum(1 << i for i in allowed)
        yielded: set[int] = set()
        for group in self._groups(own, allowed):
            hull = self._hull(group)
            if not hull & outside and hull not in yielded:
                yielded.add(hull)
                yield [self.chosen[i] for i in IndexSet.from_bits(hull)]

    def _hull(self, group: Sequence[int]) -> int:
        """The group and all that lies between its members: the least set around it that no path re-enters."""
        below = reduce(or_, (self.quotient.downstream[i] for i in group))
        above = reduce(or_, (self.quotient.upstream[i] for i in group))
        return reduce(or_, (1 << i for i in group), below & above)

    def _groups(self, own: Sequence[int], allowed: set[int]) -> Iterator[Sequence[int]]:
        """Pairs and maximal runs of a backend's partitions, not yet checked."""
        mine = set(own)
        readers = self._readers(own)
        after = self._readers_through_host()
        for i in own:
            yield from ((i, j) for j in IndexSet.from_bits(after[i]) if j in mine)
        for together in readers:
            for k, i in enumerate(together):
                yield from ((i, j) for j in together[k + 1 : k + MAX_SIBLINGS])
        # Nothing that is not allowed lies between two of the allowed on one level, as in a maximal region.
        for levels in (levels_of(self.quotient.inputs, allowed), levels_of(self.quotient.outputs, allowed, True)):
            for shared in ([], readers):
                yield from self._runs(own, allowed, levels, shared)

    def _readers(self, own: Sequence[int]) -> list[list[int]]:
        """For each value that several of the partitions read, those partitions in execution order."""
        readers: dict[int, list[int]] = {}
        for i in own:
            for node in self.chosen[i].sub_graph.boundary.inputs:
                readers.setdefault(node, []).append(i)
        return [together for _, together in sorted(readers.items()) if len(together) > 1]

    def _readers_through_host(self) -> list[int]:
        """Per candidate, the partitions that read it, directly or through nodes on the host alone."""
        sets = [0] * len(self.chosen)
        for i in reversed(range(len(sets))):
            sets[i] = reduce(or_, (sets[r] if self.is_host[r] else 1 << r for r in self.quotient.outputs[i]), 0)
        return sets

    def _runs(
        self, own: Sequence[int], allowed: set[int], levels: Sequence[int], shared: Sequence[Sequence[int]]
    ) -> Iterator[list[int]]:
        """The partitions of each connected component of what is allowed on one level; `shared`: further connections."""
        components = DisjointSets()
        for i in allowed:
            for source in self.quotient.inputs[i]:
                if source in allowed and levels[source] == levels[i]:
                    components.join(source, i)
        for together in shared:
            by_level: dict[int, int] = {}
            for i in together:
                components.join(by_level.setdefault(levels[i], i), i)
        yield from (run for run in components.groups(own) if len(run) > 1)


@dataclass(frozen=True)
class _Given(PartitionRule):
    """The candidates themselves: what stands below a combinator that is asked about them."""

    candidates: tuple[CandidatePartition, ...]

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return list(self.candidates)


def _allows(
    rule: PartitionRule,
    spec: PartitionSpec,
    backend: Backend,
    union: CandidatePartition,
    parts: Sequence[CandidatePartition],
) -> bool:
    """Whether a tree of rules, given the parts, could have found their union.

    Each filter of the tree (`Primitive`, `OnlyValid`, `Filter`) has to keep the union; a `Combine` below has to be able
    to make it. Where the tree begins (regions, patterns, single operators), backends that coalesce take several of
    what they take one by one, as one function; of the others a partition is no more than what their rules say.
    """
    if isinstance(rule, UnionPartitionRule):
        return any(_allows(branch, spec, backend, union, parts) for branch in rule.rules)
    if isinstance(rule, (PrimitivePartitionRule, OnlyValidPartitionRule, FilterPartitionRule)):
        kept = replace(rule, rule=_Given((union,))).all_candidates(union.sub_graph.graph, spec)
        return bool(kept) and _allows(rule.rule, spec, backend, union, parts)
    if isinstance(rule, CombinePartitionRule):
        return _combines(rule, backend.style, union.sub_graph, [part.sub_graph for part in parts])
    return backend.coalesces


def _combines(rule: CombinePartitionRule, style: str, union: SubGraph, parts: Sequence[SubGraph]) -> bool:
    """Whether the combiners make the union: of its parts or, for a native kernel, of its operators.

    The limit on the number of candidates per exit is for enumerating, and does not count here.
    """
    if not union.is_valid(_limits(rule)):
        return False
    if _grows(rule, parts):
        return True
    return style == "native" and _grows(rule, [SubGraph(union.graph, IndexSet([i])) for i in union.inside])


def _limits(rule: CombinePartitionRule) -> SubGraphConfig:
    return SubGraphConfig(max_exits=rule.max_exits, max_depth=rule.max_depth)


def _grows(rule: CombinePartitionRule, pieces: Sequence[SubGraph]) -> bool:
    """Whether the last piece grows to the whole by joining one piece after another, each union valid.

    Freer kinds go first, because combiners limit the kind of what is joined; then later ones, from the exit upwards.
    """
    waiting = sorted(pieces, key=lambda piece: (piece.kind, -piece.inside.last))
    grown = max(pieces, key=lambda piece: piece.inside.last)
    waiting.remove(grown)
    while waiting:
        piece = next((p for p in waiting if _can_join(rule, p, grown)), None)
        if piece is None:
            return False
        waiting.remove(piece)
        grown = grown.union(piece)
    return True


def _can_join(rule: CombinePartitionRule, piece: SubGraph, grown: SubGraph) -> bool:
    return any(_joins(c, piece, grown) for c in rule.combiners) and grown.union(piece).is_valid(_limits(rule))


def _joins(combiner: CombinerRule, one: SubGraph, other: SubGraph) -> bool:
    """Whether a combiner joins two disjoint sub-graphs, one way or the other (`CombinePartitionRule`)."""
    feeds = {
        (up, down): not set(up.boundary.outputs).isdisjoint(down.inside) for up, down in ((one, other), (other, one))
    }
    if not combiner.horizontal:
        return any(combiner.joins(up, down) for (up, down), edge in feeds.items() if edge)
    if any(feeds.values()) or set(one.boundary.inputs).isdisjoint(other.boundary.inputs):
        return False
    first, second = sorted((one, other), key=lambda piece: piece.inside.first)
    return combiner.joins(first, second)
