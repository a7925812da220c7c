"""CombinePartitionRule: the closure of candidates under combiner rules (RFC 0062, "CombinePartitionRule").

The closure is complete: every new candidate is paired, as upstream and as downstream, with every candidate found
before it, until nothing new appears. Pairs are found through the entry and exit nodes at which they touch, never by
trying all with all.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph, SubGraphConfig
from collage.rules.base import PartitionRule, PartitionSpec
from collage.rules.combiners import CombinerRule

_Key = tuple[IndexSet, tuple[tuple[str, IndexSet], ...]]


@dataclass(frozen=True)
class CombinePartitionRule(PartitionRule):
    """All unions, to a fixed point, of candidates that some combiner joins.

    Attributes
    ----------
    rule
        Finds the candidates to begin with; they are part of the result.
    combiners
        A pair is joined when any of them agrees.
    max_depth
        Unions with a longer path are dropped; 0 for no limit.
    max_exits
        Unions with more exits are dropped *while closing*; 0 for no limit. With 1, what remains is every union that can
        be grown from its exit upwards. For the native kind table these are all the valid ones: a convex sub-graph with
        one exit can be built by adding its nodes in reverse topological order, each step with that exit.
    max_per_exits
        Of unions with the same exits only the first so many, smallest first, are kept; 0 for no limit. It bounds what a
        wide join does: a concatenate of six sums of biased branches is the exit of 5,000 sub-graphs.
    """

    rule: PartitionRule
    combiners: Sequence[CombinerRule]
    max_depth: int = 0
    max_exits: int = 0
    max_per_exits: int = 0

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        config = SubGraphConfig(max_exits=self.max_exits, max_depth=self.max_depth)
        closure = _Closure(tuple(self.combiners), config, self.max_per_exits)
        for candidate in self.rule.all_candidates(graph, spec):
            closure.add(candidate)
        return closure.run()


class _Closure:
    """Candidates found so far, those paired already indexed by where they touch others."""

    def __init__(self, combiners: Sequence[CombinerRule], config: SubGraphConfig, max_per_exits: int) -> None:
        self.along_edges = [c for c in combiners if not c.horizontal]
        self.horizontal = [c for c in combiners if c.horizontal]
        self.config = config
        self.max_per_exits = max_per_exits
        self.with_exits: Counter[tuple[int, ...]] = Counter()
        self.found: dict[_Key, CandidatePartition] = {}
        self.rejected: set[_Key] = set()
        self.waiting: deque[CandidatePartition] = deque()
        self.by_entry: defaultdict[int, list[CandidatePartition]] = defaultdict(list)
        self.by_exit: defaultdict[int, list[CandidatePartition]] = defaultdict(list)
        self.by_input: defaultdict[int, list[CandidatePartition]] = defaultdict(list)

    def add(self, candidate: CandidatePartition) -> None:
        key = (candidate.sub_graph.inside, candidate.composites)
        if key not in self.found:
            self.found[key] = candidate
            self.waiting.append(candidate)

    def run(self) -> list[CandidatePartition]:
        while self.waiting:
            new = self.waiting.popleft()
            for old in self.touching(new, downstream=True):
                self.try_join(new, old, self.along_edges)
            for old in self.touching(new, downstream=False):
                self.try_join(old, new, self.along_edges)
            if self.horizontal:
                for old in self.sharing_input(new):
                    first, second = sorted((old, new), key=lambda c: c.sub_graph.inside.first)
                    self.try_join(first, second, self.horizontal)
            self.index(new)
        return list(self.found.values())

    def index(self, candidate: CandidatePartition) -> None:
        boundary = candidate.sub_graph.boundary
        for node in boundary.entries:
            self.by_entry[node].append(candidate)
        for node in boundary.exits:
            self.by_exit[node].append(candidate)
        if self.horizontal:
            for node in boundary.inputs:
                self.by_input[node].append(candidate)

    def touching(self, new: CandidatePartition, downstream: bool) -> Iterator[CandidatePartition]:
        """Earlier candidates, disjoint from `new`, that read its exits (or feed its entries), each once."""
        boundary = new.sub_graph.boundary
        where, index = (boundary.outputs, self.by_entry) if downstream else (boundary.inputs, self.by_exit)
        yield from self._disjoint(new, where, index)

    def sharing_input(self, new: CandidatePartition) -> Iterator[CandidatePartition]:
        """Earlier candidates, disjoint from `new` and without an edge to or from it, that read one of its inputs."""
        neighbours = new.sub_graph.inputs | new.sub_graph.outputs
        for old in self._disjoint(new, new.sub_graph.boundary.inputs, self.by_input):
            if old.sub_graph.inside.isdisjoint(neighbours):
                yield old

    def _disjoint(
        self, new: CandidatePartition, where: tuple[int, ...], index: dict[int, list[CandidatePartition]]
    ) -> Iterator[CandidatePartition]:
        inside = new.sub_graph.inside
        seen: set[int] = set()
        for node in where:
            for old in index.get(node, ()):
                if id(old) not in seen and old.sub_graph.inside.isdisjoint(inside):
                    if len(where) > 1:
                        seen.add(id(old))
                    yield old

    def has_room(self, union: SubGraph) -> bool:
        """Count a valid union towards the limit of its exits; False when that is reached."""
        exits = union.boundary.exits
        self.with_exits[exits] += 1
        return not self.max_per_exits or self.with_exits[exits] <= self.max_per_exits

    def try_join(self, up: CandidatePartition, down: CandidatePartition, combiners: Sequence[CombinerRule]) -> None:
        above, below = up.sub_graph, down.sub_graph
        if not any(combiner.joins(above, below) for combiner in combiners):
            return
        inside = above.inside | below.inside
        composites = up.composites + down.composites
        if len(composites) > 1:
            composites = tuple(sorted(composites, key=lambda item: (item[1].bits, item[0])))
        key = (inside, composites)
        if key in self.found or key in self.rejected:
            return
        union = SubGraph(above.graph, inside)
        if union.is_valid(self.config) and self.has_room(union):
            self.add(CandidatePartition(union, up.backend, composites))
        else:
            self.rejected.add(key)
