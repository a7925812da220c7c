"""Crossings: the cost of values that pass from one device to another.

Every partition runs on the device of its backend. A value that is read on another device is copied there, once per
value and device, however many partitions read it. Inputs and results of the network are at *home*, the first device. A
node on the host is at home if it is a result; otherwise it is where the first value that it reads is. Constants are
wherever they are read. `collage.compile.copies` places copies by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collage.cost.transition import Pair, Transition
from collage.graph.candidates import HOST, CandidatePartition, quotient_of
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind

#: From, to, and the node whose value is copied.
Copy = tuple[str, str, int]


@dataclass(frozen=True)
class Crossings:
    """The devices of a search, and what copies between them cost.

    Attributes
    ----------
    home
        Where inputs lie and results end.
    devices
        Backend name -> its device.
    copies
        (from, to) -> what a copy costs. Absent pairs cost nothing.
    """

    home: str
    devices: Mapping[str, str]
    copies: Mapping[Pair, Transition]

    def seconds(self, graph: DataflowGraph, chosen: Sequence[CandidatePartition]) -> float:
        """Seconds of all copies of an acyclic cover."""
        return sum(self.copy_seconds(graph, copy) for copy in self.placed(graph, chosen))

    def copy_seconds(self, graph: DataflowGraph, copy: Copy) -> float:
        """Seconds of one copy."""
        source, target, node = copy
        line = self.copies.get((source, target))
        return 0.0 if line is None else line.seconds(graph.nodes[node].size)

    def placed(self, graph: DataflowGraph, chosen: Sequence[CandidatePartition]) -> Iterator[Copy]:
        """Yield the copies of an acyclic cover, each once."""
        lies = {node.index: self.home for node in graph.nodes if node.kind is NodeKind.INPUT}
        made: set[tuple[str, int]] = set()
        for group in quotient_of(chosen).order:
            candidate = chosen[group]
            reads = values_read(graph, candidate)
            if candidate.backend != HOST:
                device = self.devices[candidate.backend]
            elif any(graph.nodes[i].escapes for i in candidate.sub_graph.inside):
                device = self.home
            else:
                device = lies[reads[0]] if reads else self.home
            lies.update(dict.fromkeys(candidate.sub_graph.inside, device))
            needed = [(device, i) for i in reads]
            needed += [(self.home, i) for i in candidate.sub_graph.inside if graph.nodes[i].escapes]
            for target, node in needed:
                if lies[node] != target and (target, node) not in made:
                    made.add((target, node))
                    yield lies[node], target, node


def values_read(graph: DataflowGraph, candidate: CandidatePartition) -> list[int]:
    """The nodes that a candidate reads from outside, without constants, in the order of first use."""
    inside = candidate.sub_graph.inside
    found: dict[int, None] = {}
    for node in inside:
        for source in graph.data_inputs[node]:
            if source not in inside:
                found.setdefault(source)
    return list(found)
