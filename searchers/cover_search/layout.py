"""Layout: where nodes and candidates are in a search order, whatever they cost.

A search with other costs (another price of errors, another round of lazy costing) has the same nodes and candidates, so
the layout of a graph is kept with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple
from weakref import WeakKeyDictionary

from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.sub_graph import SubGraph


class Shape(NamedTuple):
    """The sets of a candidate; all but `first` as of `searchers.cover_search.moves.Move`, relative to it."""

    first: int
    nodes: int
    feeds: int
    wants: int
    above: int


class Edges(NamedTuple):
    """The edges of a candidate, as of `searchers.cover_search.moves.Move`."""

    into: int
    edges: int
    leaving: tuple[tuple[int, int], ...]
    entering: tuple[tuple[int, int], ...]
    giving: tuple[tuple[int, int], ...]


#: Where bytes cost nothing.
NO_EDGES = Edges(0, 0, (), (), ())


class Layout:
    """A search order of a graph, and the shapes of candidates in it. `layout_of` gives the one of a graph.

    Attributes
    ----------
    order
        Node index at each position.
    reads, readers
        Per position, the positions that its node reads, each once, and those that read it, ascending.
    first_edge
        Per position, the number of the first edge into it; edges are numbered by reader, then as in `reads`.
    """

    def __init__(self, graph: DataflowGraph) -> None:
        self.order = search_order(graph)
        self._position = {node: p for p, node in enumerate(self.order)}
        self.reads = tuple(
            tuple(dict.fromkeys(self._position[i] for i in graph.nodes[node].inputs if i in self._position))
            for node in self.order
        )
        found: list[list[int]] = [[] for _ in self.reads]
        for position, reads in enumerate(self.reads):
            for source in reads:
                found[source].append(position)
        self.readers = tuple(map(tuple, found))
        self.first_edge = tuple(accumulate((len(reads) for reads in self.reads), initial=0))
        self._shapes: dict[int, Shape | None] = {}
        self._edges: dict[tuple[int, int], Edges] = {}

    def shape(self, sub_graph: SubGraph) -> Shape | None:
        """The shape of a candidate; None where it is not convex, so that a path leaves it and comes back."""
        key = sub_graph.inside.bits
        if key not in self._shapes:
            self._shapes[key] = self._shape(sub_graph)
        return self._shapes[key]

    def edges(self, first: int, nodes: int) -> Edges:
        """The edges of a candidate: its first position, and its nodes relative to that."""
        if (first, nodes) not in self._edges:
            self._edges[first, nodes] = self._edges_of(first, nodes)
        return self._edges[first, nodes]

    def _shape(self, sub_graph: SubGraph) -> Shape | None:
        position = self._position
        members = sorted(position[i] for i in sub_graph.inside)
        first, boundary = members[0], sub_graph.boundary
        nodes = _bits(members, first)
        wants = _bits((position[i] for i in boundary.inputs if i in position), first)
        above = self._flowing_into(wants, first)
        if above & nodes:
            return None
        return Shape(first, nodes, _bits((position[i] for i in boundary.outputs), first), wants, above)

    def _flowing_into(self, wants: int, first: int) -> int:
        """All positions from `first` on that flow into `wants`, and `wants` itself."""
        found = pending = wants
        while pending:
            low = pending & -pending
            pending ^= low
            for p in self.reads[first + low.bit_length() - 1]:
                if p >= first and not found >> (p - first) & 1:
                    found |= 1 << (p - first)
                    pending |= 1 << (p - first)
        return found

    def _edges_of(self, first: int, nodes: int) -> Edges:
        members = [first + offset for offset in range(nodes.bit_length()) if nodes >> offset & 1]
        inside, number, base = set(members), self.first_edge, self.first_edge[first]
        into = 0
        leaving: list[tuple[int, int]] = []
        entering: dict[int, int] = {}
        giving = []
        for q in members:
            for k, source in enumerate(self.reads[q]):
                bit = 1 << (number[q] + k - base)
                into |= bit
                if source not in inside:
                    entering.setdefault(source, bit)
            outside = [v for v in self.readers[q] if v not in inside]
            for v in outside:
                leaving.append((1 << (v - first), 1 << (number[v] + self.reads[v].index(q) - base)))
            if outside:
                giving.append((1 << (q - first), q))
        entries = tuple((bit, source) for source, bit in entering.items())
        return Edges(into, sum(bit for _, bit in leaving), tuple(leaving), entries, tuple(giving))


_LAYOUTS: WeakKeyDictionary[DataflowGraph, Layout] = WeakKeyDictionary()


def layout_of(graph: DataflowGraph) -> Layout:
    """The layout of a graph, made when it is first asked for."""
    if graph not in _LAYOUTS:
        _LAYOUTS[graph] = Layout(graph)
    return _LAYOUTS[graph]


def search_order(graph: DataflowGraph) -> tuple[int, ...]:
    """A topological order of the coverable nodes in which few values are alive at a time.

    Few live values mean few states. The graph's own order is kept unless another is better: exporters often write
    breadth first, which interleaves branches.
    """
    own = tuple(graph.coverable)
    return min((own, _operands_first(graph, own)), key=lambda order: _pressure(graph, order))


def _operands_first(graph: DataflowGraph, own: Sequence[int]) -> tuple[int, ...]:
    """Each node directly after what it reads, the deepest operand first (as Sethi and Ullman order an expression)."""
    inside = set(own)
    reads = {node: [i for i in graph.nodes[node].inputs if i in inside] for node in own}
    depth: dict[int, int] = {}
    for node in own:
        depth[node] = 1 + max((depth[i] for i in reads[node]), default=0)
    sinks = [node for node in own if inside.isdisjoint(graph.nodes[node].outputs)]
    order: list[int] = []
    seen: set[int] = set()
    pending = [(node, False) for node in sorted(sinks, key=lambda node: (depth[node], -node))]
    while pending:
        node, ready = pending.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending.extend((i, False) for i in sorted(reads[node], key=lambda i: (depth[i], -i)) if i not in seen)
    return tuple(order)


def _pressure(graph: DataflowGraph, order: Sequence[int]) -> int:
    """Sum of squares of the number of live values at each position: wide places count more than long ones."""
    position = {node: p for p, node in enumerate(order)}
    changes = [0] * (len(order) + 1)
    for p, node in enumerate(order):
        last = max((position[reader] for reader in graph.nodes[node].outputs if reader in position), default=p)
        changes[p] += 1
        changes[last] -= 1
    alive = total = 0
    for change in changes:
        alive += change
        total += alive * alive
    return total


def _bits(positions: Iterable[int], first: int) -> int:
    bits = 0
    for p in positions:
        if p >= first:
            bits |= 1 << (p - first)
    return bits
