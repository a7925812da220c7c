"""Partial covers: the states of the layered search, the moves between them, and which of them are dropped.

A state is what a partial cover leaves to be decided: the first uncovered node, the nodes after it that are covered
already, and the open partitions (`searchers.cover_search.open_partitions`). It has two numbers. Its *value* is the cost
of the cover so far beyond the shares of its nodes (`searchers.cover_search.bounds`). States of the same covered nodes
are compared by it: one that cannot lead to anything better is dropped (*dominance*). Its *rank* is the least that a
whole cover which follows from it costs beyond the bound of the network: A* with that bound. Without potentials on the
edges (`searchers.cover_search.edge_potentials`) value and rank are the same.

With potentials, the rank of a state counts the charges of the edges between covered and uncovered nodes, and the state
keeps the charges *pending* at each uncovered node. A move takes the charges at its own nodes out again, because it
brings charges of its own, and pays the transitions instead, which are never less. So ranks never fall.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from searchers.cover_search.bounds import node_shares, offsets
from searchers.cover_search.crossings import partitions_of
from searchers.cover_search.edge_potentials import Potentials
from searchers.cover_search.moves import Move, Moves
from searchers.cover_search.open_partitions import Open, Row, shifted

#: The candidates chosen so far, last first, as a linked list that states share.
Trail = tuple["Trail", int] | None
#: Charges of edges from covered nodes, by uncovered node (absolute position).
Pending = Mapping[int, int]
#: (value, nodes covered beyond the first uncovered one, open partitions, trail, rank, pending charges)
State = tuple[int, int, Open, Any, int, Pending]
#: (position, value, covered beyond it, open partitions, rank, move that led there)
Step = tuple[int, int, int, Open, int, Move]
#: By candidate: what a move costs in transitions, and its step (position, covered beyond it, open partitions); None
#: where it closes a cycle.
Opened = dict[int, tuple[int, int, int, Open] | None]
#: Of a move: its slack, its charges for nodes before its first, and (bit, position, charge) for each node after that.
_Charges = tuple[int, int, tuple[tuple[int, int, int], ...]]

_NOTHING: Pending = {}
START: State = (0, 0, (), None, 0, _NOTHING)

#: With how many better states of the same covered nodes, which may dominate it, a state is compared.
_COMPARED = 48


class PartialCovers:
    """The states of one search, by the rules above.

    Attributes
    ----------
    floor
        Packed value of a state of value 0.
    bound
        Packed value of a state of rank 0: no cover is below.
    """

    def __init__(self, moves: Moves) -> None:
        shares = node_shares(moves)
        self.floor = self.bound = sum(shares)
        self._moves = _reduced(moves, shares)
        self._partitions = partitions_of(moves)
        self._tracking = bool(moves.transitions) or moves.crossing is not None
        self._first_edge = moves.layout.first_edge
        self._charges: dict[int, _Charges] = {}

    @property
    def size(self) -> int:
        """The position of a whole cover."""
        return len(self._moves)

    def tighten(self, potentials: Potentials, limit: int) -> None:
        """Rank by these from now on, and forget the moves that lead to no cover of less than `limit`."""
        self.bound = potentials.floor
        for first, moves in enumerate(self._moves):
            self._moves[first] = [m for m in moves if self.bound + potentials.slack[m.candidate] < limit]
            for move in self._moves[first]:
                charges = potentials.charges[move.candidate]
                later = [(1 << (q - first), q, charge) for q, charge in charges if q > first]
                early = sum([charge for q, charge in charges if q < first])
                self._charges[move.candidate] = potentials.slack[move.candidate], early, tuple(later)

    def steps(
        self, position: int, state: State, limit: float, rank_limit: float, opened: Opened | None = None
    ) -> Iterator[Step]:
        """What one more move leads to, of a value below `limit` and a rank below `rank_limit`.

        `opened` is filled, for further states of the same nodes and open partitions.
        """
        value, ahead, open_, _, _, _ = state
        opened = {} if opened is None else opened
        for move in self._moves[position]:
            nodes = move.nodes
            reached = value + move.weight
            if reached >= limit:
                return  # moves are sorted by weight
            if ahead & nodes:
                continue
            if move.candidate not in opened:
                opened[move.candidate] = self._opened(position, ahead | nodes, open_, move)
            found = opened[move.candidate]
            if found is None:
                continue
            paid, after, covered, then = found
            reached += paid
            if paid and reached >= limit:
                continue
            rank = self._rank(position, state, move, paid) if self._charges else reached
            if rank < rank_limit:
                yield after, reached, covered, then, rank, move

    def _opened(self, position: int, covered: int, open_: Open, move: Move) -> tuple[int, int, int, Open] | None:
        """What a move leads to; `covered` includes its nodes."""
        paid = 0
        then: Open = ()
        if open_ or self._tracking or move.above & ~covered:
            added = self._partitions.add(open_, covered, move)
            if added is None:
                return None
            paid, then = added
        steps = (covered ^ (covered + 1)).bit_length() - 1  # the ones at the low end
        if then:
            then = shifted(then, steps, self._first_edge[position + steps] - self._first_edge[position])
        return paid, position + steps, covered >> steps, then

    def state(self, position: int, before: State, step: Step) -> State:
        """Where a step leads that was taken from `before` at `position`."""
        _, reached, covered, then, rank, move = step
        return reached, covered, then, (before[3], move.candidate), rank, self._pending(position, before, move)

    def least_after(self, position: int, state: State, moves: int, limit: float, rank_limit: float) -> int | None:
        """The least rank below `rank_limit` that so many further moves can reach; None when there is none."""
        if moves == 0 or position == self.size:
            return state[4]
        best: int | None = None
        for step in self.steps(position, state, limit, rank_limit):
            # Ranks never fall, so what is no better by now never will be.
            if best is None or step[4] < best:
                after = self.state(position, state, step)
                least = self.least_after(step[0], after, moves - 1, limit, rank_limit)
                if least is not None and (best is None or least < best):
                    best = rank_limit = least
        return best

    def undominated(self, position: int, layer: Mapping[Any, State], rank_limit: float) -> list[State]:
        """The states at a position that may still lead to a best cover, of least value first."""
        if len(layer) == 1:
            return [state for state in layer.values() if state[4] < rank_limit]
        states = sorted(layer.values(), key=lambda state: state[:3])
        kept: list[State] = []
        dominating: dict[int, list[tuple[int, frozenset[Row]]]] = {}
        is_cheaper = self._partitions.is_cheaper
        for state in states:
            value, covered, open_, _, rank, _ = state
            if rank >= rank_limit:
                continue
            better = dominating.setdefault(covered, [])
            rows = frozenset(open_)
            if len(rows) == len(open_):  # twins, which sets do not count, are too rare to be worth more
                if any(is_cheaper(value - other, position, theirs, rows) for other, theirs in better):
                    continue
                if len(better) < _COMPARED:
                    better.append((value, rows))
            kept.append(state)
        return kept

    def _rank(self, position: int, state: State, move: Move, paid: int) -> int:
        _, ahead, _, _, rank, pending = state
        slack, more, later = self._charges[move.candidate]
        nodes = move.nodes
        for q, charge in pending.items():
            if nodes >> (q - position) & 1:
                more += charge
        for bit, _, charge in later:
            if ahead & bit:
                more += charge
        # Only where a candidate was given credit may the charges be more than what is paid.
        return rank + slack + max(0, paid - more)

    def _pending(self, position: int, state: State, move: Move) -> Pending:
        if not self._charges:
            return _NOTHING
        _, ahead, _, _, _, pending = state
        nodes = move.nodes
        result = {q: charge for q, charge in pending.items() if not nodes >> (q - position) & 1}
        for bit, q, charge in self._charges[move.candidate][2]:
            if not ahead & bit:
                result[q] = result.get(q, 0) + charge
        return result


def _reduced(moves: Moves, shares: list[int]) -> list[list[Move]]:
    """The moves with what they cost beyond their nodes' shares, cheapest first."""
    result = []
    for first, starting in enumerate(moves.starting):
        reduced = [
            move._replace(weight=move.weight - sum([shares[first + offset] for offset in offsets(move.nodes)]))
            for move in starting
        ]
        result.append(sorted(reduced, key=lambda move: move.weight))
    return result
