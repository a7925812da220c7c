"""Combiner rules: when two neighbouring candidates may become one (RFC 0062, "CombinerRule").

`CombinePartitionRule` finds the pairs and checks that the union is convex and not too deep; a combiner only says
whether these two fit together. Most combiners join along an edge, *upstream* to *downstream*; a horizontal one joins
two that share an input. Constants need no rule of their own to be joined to their users: they are pulled in when a
candidate is extracted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind, OpKind
from collage.graph.sub_graph import SubGraph


class CombinerRule(ABC):
    """Says whether two disjoint sub-graphs may be joined.

    Attributes
    ----------
    horizontal
        False when it joins along an edge; True when it joins sub-graphs that share an input and do not touch.
    """

    horizontal: ClassVar[bool] = False

    @abstractmethod
    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        """Whether to join. An exit of `upstream` feeds an entry of `downstream`; if horizontal, both read one value."""


@dataclass(frozen=True)
class CombineByKind(CombinerRule):
    """Joins an upstream of at most one operator kind to a downstream of at most another."""

    upstream_kind: OpKind
    downstream_kind: OpKind

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        return upstream.kind <= self.upstream_kind and downstream.kind <= self.downstream_kind


@dataclass(frozen=True)
class CombineTupleArguments(CombinerRule):
    """Joins a producer of a tuple to the tuple, also to one that is an argument and has producers joined to it already,
    and a tuple to the injective call (concatenate) that takes it.
    """

    max_kind: OpKind = OpKind.INJECTIVE

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        nodes = upstream.graph.nodes
        if downstream.kind is OpKind.TUPLE and upstream.kind <= self.max_kind:
            if all(nodes[i].kind is NodeKind.TUPLE for i in downstream.boundary.entries):
                return True
            readers = (r for i in upstream.boundary.exits for r in nodes[i].outputs if r in downstream.inside)
            return any(nodes[r].kind is NodeKind.TUPLE and _is_argument(upstream.graph, r) for r in readers)
        if upstream.kind is OpKind.TUPLE and downstream.kind <= self.max_kind:
            return all(nodes[i].kind is NodeKind.TUPLE for i in upstream.boundary.exits)
        return False


def _is_argument(graph: DataflowGraph, tuple_node: int) -> bool:
    """Whether a call reads a tuple: nothing is gained by computing together what is only returned together."""
    return any(graph.nodes[reader].kind is NodeKind.CALL for reader in graph.nodes[tuple_node].outputs)


@dataclass(frozen=True)
class CombineTupleProjections(CombinerRule):
    """Joins a call that returns a tuple (split, batch normalisation) to projections of its result."""

    max_kind: OpKind = OpKind.ANCHOR

    def joins(self, upstream: SubGraph, downstream: SubGraph) -> bool:
        if upstream.kind > self.max_kind:
            return False
        nodes, exits = upstream.graph.nodes, upstream.boundary.exits
        return all(
            nodes[i].kind is NodeKind.TUPLE_GET and nodes[i].inputs[0] in exits for i in downstream.boundary.entries
        )


#: What TVM's own fusion does, as three joins along an edge; each kind means "that or less".
NATIVE_KIND_TABLE: tuple[CombinerRule, ...] = (
    CombineByKind(OpKind.ANCHOR, OpKind.BROADCAST),
    CombineByKind(OpKind.BROADCAST, OpKind.REDUCTION),
    CombineByKind(OpKind.INJECTIVE, OpKind.INJECTIVE),
)
