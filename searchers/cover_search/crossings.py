"""Copies between devices in partial covers.

A copy is paid for once per value and device (`collage.search.crossings`), so a partial cover has to remember where each
live value lies, and on which devices it is already. That goes with the open partitions, as rows of their own: a value
is live while it is covered and a reader is not, or the other way round. Problems of one device have none of it.
"""

from __future__ import annotations

from typing import NamedTuple

from searchers.cover_search.bounds import positions
from searchers.cover_search.moves import Crossing, Move, Moves
from searchers.cover_search.open_partitions import Open, OpenPartitions, Row


class _Sides(NamedTuple):
    """What a move reads and gives, in absolute positions.

    Attributes
    ----------
    first
        Its first position.
    reads
        Values from outside, in the order of first use; those of the network's inputs come after the last position.
    gives
        Positions inside that are read outside, or are results.
    result
        Whether one of them is a result.
    """

    first: int
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    result: bool


#: Where a value lies (-1 while it is not covered), and the devices that it is on, or is wanted on, as a bit set.
_Value = tuple[int, int]


class CrossingPartitions(OpenPartitions):
    """Open partitions, with where the live values lie."""

    def __init__(self, moves: Moves, crossing: Crossing) -> None:
        super().__init__(moves)
        self._crossing = crossing
        self._count = len(crossing.copies)
        self._nowhere: _Value = (-1, 0)
        self._home: _Value = (crossing.home, 1 << crossing.home)
        size = len(moves.layout.order)
        self._readers: list[list[int]] = [[] for _ in range(size + crossing.inputs)]
        for position, reads in enumerate(crossing.reads):
            for source in reads:
                self._readers[source].append(position)
        self._size = size
        self._sides = {
            move.candidate: self._sides_of(first, move)
            for first, moves_ in enumerate(moves.starting)
            for move in moves_
        }

    def add(self, open_: Open, covered: int, move: Move) -> tuple[int, Open] | None:
        """As of `OpenPartitions`, with copies."""
        rows, values = self._apart(open_)
        added = super().add(rows, covered, move)
        if added is None:
            return None
        paid, then = added
        crossing, sides = self._crossing, self._sides[move.candidate]
        device = crossing.devices[move.backend]
        if device < 0:  # the host: all that it reads is covered
            device = crossing.home
            if sides.reads and not sides.result:
                device = values.get(sides.reads[0], self._home)[0]
        copies = crossing.copies
        for value in sides.reads:
            owner, on = values.get(value, self._home if value >= self._size else self._nowhere)
            if owner >= 0 and not on >> device & 1:
                paid += copies[owner][device][value]
            values[value] = owner, on | 1 << device
        for value in sides.gives:
            _, wanted = values.get(value, self._nowhere)
            if crossing.results[value]:
                wanted |= 1 << crossing.home
            paid += sum([copies[device][d][value] for d in range(self._count) if d != device and wanted >> d & 1])
            values[value] = device, wanted | 1 << device
        first = sides.first
        live = [
            (-2 - ((value * (self._count + 1) + owner + 1) << self._count | on), 0, 0, 0, 0)
            for value, (owner, on) in sorted(values.items())
            if owner < 0 or ((value < self._size or (owner, on) != self._home) and self._awaited(value, first, covered))
        ]
        return paid, (*then, *live)

    def is_cheaper(self, lead: int, position: int, mine: frozenset[Row], theirs: frozenset[Row]) -> bool:
        """As of `OpenPartitions`, with the copies that the one may still need and the other has."""
        rows, values = self._apart(mine)
        their_rows, their_values = self._apart(theirs)
        if values == their_values:
            return super().is_cheaper(lead, position, frozenset(rows), frozenset(their_rows))
        copies, extra = self._crossing.copies, 0
        for value in values.keys() | their_values.keys():
            default = self._home if value >= self._size else self._nowhere
            (owner, on), (other, there) = values.get(value, default), their_values.get(value, default)
            if owner != other and any(self._crossing.on_host[v] for v in self._readers[value] if v >= position):
                return False  # a node on the host would lie elsewhere
            for d in range(self._count):
                if owner < 0:
                    if on >> d & 1 and not there >> d & 1:
                        extra += max(row[d][value] for row in copies)
                elif not on >> d & 1:
                    extra += max(0, copies[owner][d][value] - (0 if there >> d & 1 else copies[other][d][value]))
        if extra and lead <= extra:
            return False
        return super().is_cheaper(lead - extra - bool(extra), position, frozenset(rows), frozenset(their_rows))

    def _apart(self, open_: Open | frozenset[Row]) -> tuple[Open, dict[int, _Value]]:
        """The open partitions, and the live values."""
        rows, values = [], {}
        for row in open_:
            if row[0] > -2:
                rows.append(row)
                continue
            code = -2 - row[0]
            value, owner = divmod(code >> self._count, self._count + 1)
            values[value] = owner - 1, code & (1 << self._count) - 1
        return tuple(rows), values

    def _awaited(self, value: int, first: int, covered: int) -> bool:
        """Whether some reader is not covered; `covered` is relative to `first`."""
        return any(v >= first and not covered >> (v - first) & 1 for v in self._readers[value])

    def _sides_of(self, first: int, move: Move) -> _Sides:
        members = list(positions(move.nodes, first))
        inside = set(members)
        reads = self._crossing.reads
        order = sorted(members, key=self._crossing.nodes.__getitem__)
        outside = list(dict.fromkeys(s for v in order for s in reads[v] if s not in inside))
        results = self._crossing.results
        gives = tuple(v for v in members if results[v] or any(w not in inside for w in self._readers[v]))
        return _Sides(first, tuple(outside), gives, any(results[v] for v in members))


def partitions_of(moves: Moves) -> OpenPartitions:
    """The rules by which open partitions of these moves evolve."""
    return OpenPartitions(moves) if moves.crossing is None else CrossingPartitions(moves, moves.crossing)
