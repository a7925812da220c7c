"""Moves: the candidates as steps of a search that always covers the first node that is not covered yet.

Nodes get positions 0..n-1 in a topological order. The candidate that covers position p while everything before p is
covered starts at p or later, so its sets are kept as bit sets *relative to p*. A candidate of five neighbouring nodes
is a five-bit number wherever in the network it is, and the search never handles a bit set as long as the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from collage.graph.candidates import HOST
from collage.graph.dataflow_graph import DataflowGraph
from searchers.cover_search.objective import Objective


class Move(NamedTuple):
    """One candidate; all bit sets are relative to its first position.

    Attributes
    ----------
    weight
        Packed value (`Objective`).
    nodes
        Positions inside.
    feeds
        Positions outside that read an inside node.
    wants
        Positions outside that an inside node reads; those before the first are covered by then and left out.
    above
        Positions outside that flow into an inside node, directly or not; those before the first left out.
    backend
        Index into `Moves.backends`.
    candidate
        Index into `Objective.candidates`.
    used
        What it takes of a limit (`searchers.cover_search.label_search`).
    into, edges
        Edges whose reader is inside, and edges that leave it, where bytes cost something. Edges are numbered by reader;
        bit 0 is the first one into the first position.
    leaving
        (bit of its reader in `feeds`, bit in `edges`) of every edge of `edges`.
    entering, giving
        (bit of one edge, position) of every value that is read from outside, and (bit in `nodes`, position) of every
        value that is read outside, where bytes cost something.
    """

    weight: int
    nodes: int
    feeds: int
    wants: int
    above: int
    backend: int
    candidate: int
    used: int = 0
    into: int = 0
    edges: int = 0
    leaving: tuple[tuple[int, int], ...] = ()
    entering: tuple[tuple[int, int], ...] = ()
    giving: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Crossing:
    """What copies between devices cost, where there are several (`collage.search.crossings`).

    Values are those of the positions, and after them those of the network's inputs.

    Attributes
    ----------
    home
        Number of the device where inputs lie and results end.
    devices
        Per backend index, the number of its device; -1 of the host.
    copies
        By device, by device: packed value of a copy of each value.
    reads
        Per position, the values that its node reads, without constants, in argument order.
    results
        Per position, whether it is a result.
    nodes
        Per position, the node's index in the graph.
    inputs
        How many inputs there are.
    on_host
        As of `Moves`.
    """

    home: int
    devices: tuple[int, ...]
    copies: tuple[tuple[tuple[int, ...], ...], ...]
    reads: tuple[tuple[int, ...], ...]
    results: tuple[bool, ...]
    nodes: tuple[int, ...]
    inputs: int
    on_host: tuple[bool, ...]


@dataclass(frozen=True)
class Moves:
    """Every move, by first position.

    Attributes
    ----------
    order
        Node index at each position.
    starting
        Per position, the moves whose first position it is.
    reads
        Per position, the positions that its node reads, each once.
    backends
        Names.
    transitions
        Packed value by producer and consumer backend index; empty when no transition costs anything.
    carried
        Packed value of the bytes at every position, by producer and consumer backend index; empty when no bytes cost
        anything.
    host
        Index of the host among the backends; -1 when it is not there.
    on_host
        Per position, whether some candidate leaves its node on the host.
    crossing
        What copies between devices cost; None on one device.
    """

    order: tuple[int, ...]
    starting: tuple[tuple[Move, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    backends: tuple[str, ...]
    transitions: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[tuple[int, ...], ...], ...] = ()
    host: int = -1
    on_host: tuple[bool, ...] = ()
    crossing: Crossing | None = None

    @cached_property
    def first_edge(self) -> tuple[int, ...]:
        """Per position, the number of the first edge into it; edges are numbered by reader, then as in `reads`."""
        return tuple(accumulate((len(reads) for reads in self.reads), initial=0))

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """Per position, the positions that read it, ascending."""
        found: list[list[int]] = [[] for _ in self.reads]
        for position, reads in enumerate(self.reads):
            for source in reads:
                found[source].append(position)
        return tuple(map(tuple, found))


def make_moves(graph: DataflowGraph, objective: Objective, used: Sequence[int] | None = None) -> Moves:
    """Lay the candidates out over a search order. Candidates that could never be in an acyclic cover are left out, and
    those than which another of the same nodes and backend costs, and uses (`Move.used`, by candidate), no more.
    """
    order = search_order(graph)
    position = {node: p for p, node in enumerate(order)}
    before = [tuple(dict.fromkeys(position[i] for i in graph.nodes[node].inputs if i in position)) for node in order]
    backends = tuple(dict.fromkeys(c.backend for c in objective.candidates))
    number = {name: i for i, name in enumerate(backends)}
    transitions, carried = tables(objective, backends, order)
    starting: list[dict[tuple[int, int], list[Move]]] = [{} for _ in order]
    for index, candidate in enumerate(objective.candidates):
        inside = candidate.sub_graph.inside
        members = sorted(position[i] for i in inside)
        first, nodes = members[0], _bits(members, members[0])
        boundary = candidate.sub_graph.boundary
        wants = _bits((position[i] for i in boundary.inputs if i in position), first)
        above = _flowing_into(wants, first, before)
        if above & nodes:
            continue  # not convex: a path leaves it and comes back
        feeds = _bits((position[i] for i in boundary.outputs), first)
        backend = number[candidate.backend]
        uses = 0 if used is None else used[index]
        move = Move(objective.weights[index], nodes, feeds, wants, above, backend, index, uses)
        # Without transitions it does not matter which backend ran a node: one set of moves per set of nodes is enough.
        key = (nodes, backend if transitions or objective.crossings is not None else -1)
        starting[first].setdefault(key, []).append(move)
    found = tuple(tuple(move for equal in of_first.values() for move in _efficient(equal)) for of_first in starting)
    host = number.get(HOST, -1)
    on_host = tuple(any(move.backend == host and host >= 0 for move in moves) for moves in found)
    crossing = _crossing(graph, objective, backends, order, on_host)
    return with_edges(Moves(order, found, tuple(before), backends, transitions, carried, host, on_host, crossing))


def _efficient(moves: Sequence[Move]) -> list[Move]:
    """Those than which no other weighs and uses no more; of equal ones the first."""
    kept: list[Move] = []
    for move in sorted(moves, key=lambda move: (move.weight, move.used)):
        if not kept or move.used < kept[-1].used:
            kept.append(move)
    return kept


def _crossing(
    graph: DataflowGraph,
    objective: Objective,
    backends: Sequence[str],
    order: Sequence[int],
    on_host: tuple[bool, ...],
) -> Crossing | None:
    """`Moves.crossing`."""
    crossings = objective.crossings
    if crossings is None:
        return None
    names = sorted({crossings.home, *crossings.devices.values()})
    values = [*order, *graph.inputs]
    number = {node: i for i, node in enumerate(values)}
    nothing = (0,) * len(values)
    return Crossing(
        home=names.index(crossings.home),
        devices=tuple(-1 if name == HOST else names.index(crossings.devices[name]) for name in backends),
        copies=tuple(
            tuple(nothing if a == b else tuple(objective.copies[a, b][node] for node in values) for b in names)
            for a in names
        ),
        reads=tuple(tuple(number[i] for i in graph.data_inputs[node]) for node in order),
        results=tuple(graph.nodes[node].escapes for node in order),
        nodes=tuple(order),
        inputs=len(graph.inputs),
        on_host=on_host,
    )


def tables(
    objective: Objective, backends: Sequence[str], order: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[tuple[int, ...], ...], ...]]:
    """`Moves.transitions` and `Moves.carried`."""
    nothing = (0,) * len(order)
    carried = tuple(
        tuple(
            tuple(values[node] for node in order) if (values := objective.carried.get((a, b))) else nothing
            for b in backends
        )
        for a in backends
    )
    bytes_cost = any(any(values) for row in carried for values in row)
    transitions = tuple(tuple(objective.transitions.get((a, b), 0) for b in backends) for a in backends)
    cost = bytes_cost or any(any(row) for row in transitions)
    return transitions if cost else (), carried if bytes_cost else ()


def with_weights(moves: Moves, weigh: Callable[[Move], int]) -> Moves:
    """The same with other weights."""
    weighed = (tuple(move._replace(weight=weigh(move)) for move in of_position) for of_position in moves.starting)
    return replace(moves, starting=tuple(weighed))


def with_edges(moves: Moves) -> Moves:
    """The same, with what moves have to know of edges where bytes cost something."""
    if not moves.carried:
        return moves
    starting = tuple(
        tuple(_with_edges(move, first, moves) for move in of_position)
        for first, of_position in enumerate(moves.starting)
    )
    return replace(moves, starting=starting)


def _with_edges(move: Move, first: int, moves: Moves) -> Move:
    members = [first + offset for offset in range(move.nodes.bit_length()) if move.nodes >> offset & 1]
    inside, number, base = set(members), moves.first_edge, moves.first_edge[first]
    into = 0
    leaving: list[tuple[int, int]] = []
    entering: dict[int, int] = {}
    giving = []
    for q in members:
        for k, source in enumerate(moves.reads[q]):
            bit = 1 << (number[q] + k - base)
            into |= bit
            if source not in inside:
                entering.setdefault(source, bit)
        outside = [v for v in moves.readers[q] if v not in inside]
        for v in outside:
            leaving.append((1 << (v - first), 1 << (number[v] + moves.reads[v].index(q) - base)))
        if outside:
            giving.append((1 << (q - first), q))
    entries = tuple((bit, source) for source, bit in entering.items())
    return move._replace(
        into=into,
        edges=sum(bit for _, bit in leaving),
        leaving=tuple(leaving),
        entering=entries,
        giving=tuple(giving),
    )


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


def _flowing_into(wants: int, first: int, before: Sequence[Sequence[int]]) -> int:
    """All positions from `first` on that flow into `wants`, and `wants` itself."""
    found = pending = wants
    while pending:
        low = pending & -pending
        pending ^= low
        for p in before[first + low.bit_length() - 1]:
            if p >= first and not found >> (p - first) & 1:
                found |= 1 << (p - first)
                pending |= 1 << (p - first)
    return found
