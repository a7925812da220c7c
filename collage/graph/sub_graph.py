"""SubGraph: a set of nodes of a dataflow graph, with all that follows from it (RFC 0062, "SubGraph").

The boundary of a sub-graph is fourfold: *entry* and *exit* nodes lie inside and touch the outside; *input* and
*output* nodes lie outside and touch the inside. Constants are pulled in when a sub-graph is extracted: they are never
inside and never inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind


@dataclass(frozen=True)
class SubGraphConfig:
    """Limits of a valid sub-graph.

    Attributes
    ----------
    max_exits
        At most so many exit nodes; 0 for no limit.
    allow_taps
        Whether an exit may also feed a node inside.
    max_depth
        At most so many nodes on a path inside; 0 for no limit.
    """

    max_exits: int = 0
    allow_taps: bool = True
    max_depth: int = 0


class _Boundary(NamedTuple):
    entries: tuple[int, ...]
    exits: tuple[int, ...]
    taps: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    depth: int
    kind: OpKind


class SubGraph:
    """A set of nodes; equal to another when the nodes are the same. Everything else is derived, once, when first
    asked for.

    Derived sets are kept as small tuples, not bit sets: on a graph of n nodes a bit set takes n/8 bytes wherever its
    members lie, and an enumeration holds many thousands of sub-graphs of a few nodes each.
    """

    __slots__ = ("_boundary", "_convex", "graph", "inside")

    def __init__(self, graph: DataflowGraph, inside: IndexSet) -> None:
        self.graph = graph
        self.inside = inside
        self._boundary: _Boundary | None = None
        self._convex: bool | None = None

    @property
    def boundary(self) -> _Boundary:
        """Entries, exits, taps, inputs, outputs, depth and kind, found in one pass over the nodes inside."""
        if self._boundary is None:
            self._boundary = self._find_boundary()
        return self._boundary

    @property
    def entries(self) -> IndexSet:
        """Nodes inside that read a node outside (constants do not count)."""
        return IndexSet(self.boundary.entries)

    @property
    def exits(self) -> IndexSet:
        """Nodes inside that a node outside, or the function's result, reads."""
        return IndexSet(self.boundary.exits)

    @property
    def taps(self) -> IndexSet:
        """Exits that also feed a node inside."""
        return IndexSet(self.boundary.taps)

    @property
    def inputs(self) -> IndexSet:
        """Nodes outside, not constants, that a node inside reads."""
        return IndexSet(self.boundary.inputs)

    @property
    def outputs(self) -> IndexSet:
        """Nodes outside that read a node inside."""
        return IndexSet(self.boundary.outputs)

    @property
    def depth(self) -> int:
        """Number of nodes on the longest path inside."""
        return self.boundary.depth

    @property
    def kind(self) -> OpKind:
        """The greatest kind of the nodes inside."""
        return self.boundary.kind

    @property
    def label(self) -> str:
        """Operator names in order, such as "conv2d+add+relu"; at most six are spelled out."""
        names = [self.graph.nodes[i].op.rpartition(".")[2] for i in self.inside]
        return "+".join(names[:6]) + (f"+{len(names) - 6} more" if len(names) > 6 else "")

    @property
    def has_tensor_boundary(self) -> bool:
        """Whether only tensors go in and come out, and something is computed: what an external compiler can take."""
        nodes = self.graph.nodes
        crossing = (*self.boundary.exits, *self.boundary.inputs)
        return self.has_call and all(nodes[i].value is ValueKind.TENSOR for i in crossing)

    @property
    def has_call(self) -> bool:
        """Whether a call is inside, rather than tuples and projections alone."""
        return any(self.graph.nodes[i].kind is NodeKind.CALL for i in self.inside)

    @property
    def is_convex(self) -> bool:
        """Whether no path leaves the sub-graph and re-enters it.

        Only an outside reader that comes before the last node inside can flow back; where there is none, as in a
        chain, nothing has to be looked up.
        """
        if self._convex is None:
            suspects = [reader for reader in self.boundary.outputs if reader < self.inside.last]
            bits = self.inside.bits if suspects else 0
            self._convex = not any(self.graph.downstream[reader] & bits for reader in suspects)
        return self._convex

    def is_valid(self, config: SubGraphConfig) -> bool:
        """Whether it is not empty, within the limits, and convex. Cheap conditions are checked first."""
        if not self.inside:
            return False
        boundary = self.boundary
        if config.max_exits and len(boundary.exits) > config.max_exits:
            return False
        if config.max_depth and boundary.depth > config.max_depth:
            return False
        if boundary.taps and not config.allow_taps:
            return False
        return self.is_convex

    def union(self, *others: SubGraph) -> SubGraph:
        return SubGraph(self.graph, reduce(or_, (other.inside for other in others), self.inside))

    def _find_boundary(self) -> _Boundary:
        nodes, data_inputs = self.graph.nodes, self.graph.data_inputs
        ordered = tuple(self.inside)
        members = frozenset(ordered)
        entries, exits, taps = [], [], []
        inputs: set[int] = set()
        outputs: set[int] = set()
        depths: dict[int, int] = {}
        kind = OpKind.ELEMENTWISE
        for index in ordered:
            node = nodes[index]
            above, outside = 0, False
            for source in data_inputs[index]:
                if source in members:
                    above = max(above, depths[source])
                else:
                    inputs.add(source)
                    outside = True
            depths[index] = above + 1
            if outside:
                entries.append(index)
            readers = [reader for reader in node.outputs if reader not in members]
            if readers or node.escapes:
                exits.append(index)
                outputs.update(readers)
                if len(readers) < len(node.outputs):
                    taps.append(index)
            if node.op_kind > kind:
                kind = node.op_kind
        depth = max(depths.values(), default=0)
        return _Boundary(
            tuple(entries), tuple(exits), tuple(taps), tuple(sorted(inputs)), tuple(sorted(outputs)), depth, kind
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubGraph) and self.inside == other.inside and self.graph is other.graph

    def __hash__(self) -> int:
        return hash(self.inside)

    def __repr__(self) -> str:
        return f"SubGraph({self.inside!r})"
