"""Moves: the candidates as steps of a search that always covers the first node that is not covered yet.

Nodes get positions 0..n-1 in a topological order. The candidate that covers position p while everything before p is
covered already lies at p or later, so its sets are kept as bit sets *relative to p*: a candidate of five neighbouring
nodes is a five-bit number wherever in the network it lies, and the search never handles a bit set as long as the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    """

    weight: int
    nodes: int
    feeds: int
    wants: int
    above: int
    backend: int
    candidate: int


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
    """

    order: tuple[int, ...]
    starting: tuple[tuple[Move, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    backends: tuple[str, ...]
    transitions: tuple[tuple[int, ...], ...]


def make_moves(graph: DataflowGraph, objective: Objective) -> Moves:
    """Lay the candidates out over a search order. Candidates that could never be in an acyclic cover are left out."""
    order = search_order(graph)
    position = {node: p for p, node in enumerate(order)}
    before = [tuple(dict.fromkeys(position[i] for i in graph.nodes[node].inputs if i in position)) for node in order]
    backends = tuple(dict.fromkeys(c.backend for c in objective.candidates))
    number = {name: i for i, name in enumerate(backends)}
    transitions = tuple(tuple(objective.transitions.get((a, b), 0) for b in backends) for a in backends)
    if not any(any(row) for row in transitions):
        transitions = ()

    starting: list[dict[tuple[int, int], Move]] = [{} for _ in order]
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
        move = Move(objective.weights[index], nodes, feeds, wants, above, backend, index)
        # Without transitions it does not matter which backend ran a node: one move per set of nodes is enough.
        key = (nodes, backend if transitions else -1)
        known = starting[first].get(key)
        if known is None or move.weight < known.weight:
            starting[first][key] = move
    return Moves(order, tuple(tuple(moves.values()) for moves in starting), tuple(before), backends, transitions)


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
