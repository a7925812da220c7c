"""Moves: the candidates as steps of a search that always covers the first node that is not covered yet.

Nodes get positions 0..n-1 in a topological order. The candidate that covers position p while everything before p is
covered starts at p or later, so its sets are kept as bit sets *relative to p*. A candidate of five neighbouring nodes
is a five-bit number wherever in the network it is, and the search never handles a bit set as long as the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from collage.graph.candidates import HOST
from collage.graph.dataflow_graph import DataflowGraph
from searchers.cover_search.layout import NO_EDGES, Layout, layout_of
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
    layout
        Of the graph: the search order, and what its nodes read.
    starting
        Per position, the moves whose first position it is.
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

    layout: Layout
    starting: tuple[tuple[Move, ...], ...]
    backends: tuple[str, ...]
    transitions: tuple[tuple[int, ...], ...]
    carried: tuple[tuple[tuple[int, ...], ...], ...] = ()
    host: int = -1
    on_host: tuple[bool, ...] = ()
    crossing: Crossing | None = None


def make_moves(graph: DataflowGraph, objective: Objective, used: Sequence[int] | None = None) -> Moves:
    """Lay the candidates out over a search order. Candidates that could never be in an acyclic cover are left out, and
    those than which another of the same nodes and backend costs, and uses (`Move.used`, by candidate), no more.
    """
    layout = layout_of(graph)
    order = layout.order
    backends = tuple(dict.fromkeys(c.backend for c in objective.candidates))
    number = {name: i for i, name in enumerate(backends)}
    transitions, carried = tables(objective, backends, order)
    starting: list[dict[tuple[int, int], list[Move]]] = [{} for _ in order]
    for index, candidate in enumerate(objective.candidates):
        shape = layout.shape(candidate.sub_graph)
        if shape is None:
            continue
        first, nodes, feeds, wants, above = shape
        backend = number[candidate.backend]
        uses = 0 if used is None else used[index]
        edges = layout.edges(first, nodes) if carried else NO_EDGES
        move = Move(objective.weights[index], nodes, feeds, wants, above, backend, index, uses, *edges)
        # Without transitions it does not matter which backend ran a node: one set of moves per set of nodes is enough.
        key = (nodes, backend if transitions or objective.crossings is not None else -1)
        starting[first].setdefault(key, []).append(move)
    found = tuple(tuple(move for equal in of_first.values() for move in _efficient(equal)) for of_first in starting)
    host = number.get(HOST, -1)
    on_host = tuple(any(move.backend == host and host >= 0 for move in moves) for moves in found)
    crossing = _crossing(graph, objective, backends, order, on_host)
    return Moves(layout, found, backends, transitions, carried, host, on_host, crossing)


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
