"""Future charges: the most that an open partition may still be charged in transitions; dominance may err by that much.

In the worst case every uncovered reader is in a partition of its own, of the backend that is dearest to reach. A reader
that may be on the host hands on what it reads to its own readers. A node that is read may hand on what several
partitions gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from searchers.cover_search.bounds import positions
from searchers.cover_search.moves import Moves

#: Charges by backend on the other side.
_Table = Sequence[Sequence[int]]


class FutureCharges:
    """Upper bounds for the moves of one problem."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._leaving = moves.transitions
        self._entering: _Table = tuple(zip(*moves.transitions, strict=True))
        self._plain = not moves.carried and not any(moves.on_host)
        self._ends, self._sources = self._multiplicities()
        self._beyond = cache(self._beyond_twin)
        self._bytes_out = cache(self._bytes_leaving)
        self._bytes_in = cache(self._bytes_entering)
        self._detailed = lru_cache(1 << 15)(self._of_row)

    def of(self, backend: int, twin: int | None, position: int, readers: int, read: int, edges: int) -> int:
        """The most that a partition may be charged, beyond what one of backend `twin` in its place would be.

        The sets are those of `searchers.cover_search.open_partitions.Row`, relative to `position`.
        """
        if self._plain:
            leaving, entering = self._beyond(backend, twin)
            return readers.bit_count() * leaving + read.bit_count() * entering
        return self._detailed(backend, twin, position, readers, read, edges)

    def _of_row(self, backend: int, twin: int | None, position: int, readers: int, read: int, edges: int) -> int:
        leaving, entering = self._beyond(backend, twin)
        most = sum([self._ends[v] for v in positions(readers, position)]) * leaving
        most += sum([self._sources[u] for u in positions(read, position)]) * entering
        if self._moves.carried:
            out, into = self._bytes_out(backend, twin), self._bytes_in(backend, twin)
            most += sum([out[edge] for edge in positions(edges, self._moves.layout.first_edge[position])])
            most += sum([self._sources[u] * into[u] for u in positions(read, position)])
        return most

    def _beyond_twin(self, backend: int, twin: int | None) -> tuple[int, int]:
        """For one transition that leaves, and for one that enters."""
        return _excess(self._leaving, backend, twin), _excess(self._entering, backend, twin)

    def _multiplicities(self) -> tuple[list[int], list[int]]:
        """Per node, how many transitions reading it may cause, and how many being read."""
        moves, size = self._moves, len(self._moves.layout.reads)
        ends, sources = [1] * size, [1] * size
        if any(moves.on_host):
            for v in range(size):
                if moves.on_host[v]:
                    sources[v] = max(1, sum(sources[u] for u in moves.layout.reads[v]))
            for v in range(size - 1, -1, -1):
                if moves.on_host[v]:
                    ends[v] = max(1, sum(ends[w] for w in moves.layout.readers[v]))
        return ends, sources

    def _bytes_leaving(self, backend: int, twin: int | None) -> list[int]:
        """Per edge, the most that the bytes cost which pass along it, or along those behind it."""
        moves = self._moves
        others = range(len(moves.backends))
        out = moves.carried[backend]
        less = None if twin is None else moves.carried[twin]
        most = [
            max(max(0, out[b][u] - (0 if less is None else less[b][u])) for b in others)
            for u in range(len(moves.layout.reads))
        ]
        found = [0] * moves.layout.first_edge[-1]
        for v in range(len(moves.layout.reads) - 1, -1, -1):
            handed_on = 0
            if moves.on_host[v]:
                for w in moves.layout.readers[v]:
                    handed_on += found[moves.layout.first_edge[w] + moves.layout.reads[w].index(v)]
            for k, u in enumerate(moves.layout.reads[v]):
                found[moves.layout.first_edge[v] + k] = max(most[u], handed_on)
        return found

    def _bytes_entering(self, backend: int, twin: int | None) -> list[int]:
        """Per position, the most that its bytes cost when they are read."""
        carried = self._moves.carried
        return [
            max(max(0, row[backend][u] - (0 if twin is None else row[twin][u])) for row in carried)
            for u in range(len(self._moves.layout.reads))
        ]


def _excess(table: _Table, one: int, other: int | None) -> int:
    """By how much one row exceeds another at most, and not below zero."""
    if other is None:
        return max(table[one])
    return max(0, *(x - y for x, y in zip(table[one], table[other], strict=True)))
