"""Layered search: Dijkstra's algorithm over half-built covers (RFC 0062, phase 3), by first uncovered node.

A state is what a half-built cover leaves to be decided: the first uncovered node, the nodes after it that are covered
already, and the open partitions (`searchers.open_partitions`). An edge is a candidate that contains the first uncovered
node. Every edge leads to a later first uncovered node, so taking the states layer by layer is taking them in an order
in which each is final when it is expanded, and no heap is needed. A layer in which nothing beyond the first uncovered
node is covered, as at an articulation point of the network, holds one state: the search decomposes there by itself.

Three things keep layers small. States with the same covered nodes are compared, and one that cannot lead to anything
better is dropped (*dominance*). A state whose cost plus lower bound (`searchers.bounds`) reaches the best cover known
is dropped. And the search runs in passes of growing *width*, the number of states kept per layer: early passes find
good covers, which make later passes prune more; the pass in which no layer was cut proves the optimum. What was cut
gives a lower bound at any time, so a search that runs out of budget still says how far from the optimum it may be.

A beam search is the same with a last width that does cut (`Budget.width`). It may also *look ahead* where it cuts:
states are then ranked by the least that they can reach in so many further moves, which is a lower bound on all that
follows from them, too, and sees dead ends before they are entered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from searchers.bounds import node_shares, offsets
from searchers.moves import Move, Moves
from searchers.open_partitions import Open, OpenPartitions, Row, shifted

#: States kept per layer, pass by pass; the last pass keeps all.
_WIDTHS = (16, 128, 1024, 8192, None)
#: With how many better states of the same covered nodes a state is compared.
_RIVALS = 48

#: How many states are expanded between two looks at the budget.
_CHECK_EVERY = 256

#: A beam in which every state came to a dead end is widened by this factor until there is a cover, and so many times
#: whatever the budget says: an answer that is late is better than none.
_WIDENING, _WIDENINGS = 4, 4

#: The candidates chosen so far, last first, as a linked list that states share.
Trail = tuple["Trail", int] | None
#: (value beyond the lower bound, nodes covered beyond the first uncovered one, open partitions, trail)
State = tuple[int, int, Open, Any]


@dataclass
class Budget:
    """Ends a search.

    Attributes
    ----------
    deadline: on the clock of `time.monotonic`.
    states: how many more may be expanded.
    width: states kept per layer in the last pass; more only where no cover was found otherwise. None keeps all.
    look_ahead: by how many further moves states are ranked where a layer is cut.
    """

    deadline: float
    states: int
    width: int | None = None
    look_ahead: int = 0

    @property
    def spent(self) -> bool:
        return self.states <= 0 or time.monotonic() >= self.deadline


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes
    ----------
    value: packed value of the best cover; None when none was found.
    chosen: its candidates, as indices into `Objective.candidates`, in order of their first node.
    lower_bound: packed value that no cover is below; equals `value` when the cover is proven best. None when there is
        no cover.
    exact: whether the search ended by itself.
    expanded: number of states expanded.
    furthest: the position that no half-built cover got beyond, for messages when there is no cover.
    width: states kept per layer in the last pass; None when it kept all.
    spent: whether the budget was spent by the end.
    """

    value: int | None
    chosen: tuple[int, ...]
    lower_bound: int | None
    exact: bool
    expanded: int
    furthest: int
    width: int | None
    spent: bool


class LayeredSearch:
    """One search; `run` may be called once."""

    def __init__(self, moves: Moves, budget: Budget, progress: Callable[[str], None] = lambda line: None) -> None:
        shares = node_shares(moves)
        self._floor = sum(shares)
        self._partitions = OpenPartitions(moves.hand_over)
        self._moves = _reduced(moves, shares)
        self._tracking = bool(moves.hand_over)
        self._budget = budget
        self._progress = progress
        self._best: tuple[int, Trail] | None = None
        self._proven = 0
        self._expanded = 0
        self._furthest = 0

    def run(self) -> Outcome:
        exact = False
        width: int | None = None
        for width in self._widths():
            cut = self._pass(width)
            if cut is None:
                exact = True
                break
            self._proven = max(self._proven, cut if self._best is None else min(cut, self._best[0]))
            self._progress(f"searching: {self._expanded} states, width {width or 'unlimited'}")
            if self._best is not None and self._proven >= self._best[0]:
                exact = True
                break
            if self._budget.spent and self._best is not None:
                break
        work = (exact, self._expanded, self._furthest, width, self._budget.spent)
        if self._best is None:
            return Outcome(None, (), None, *work)
        value, trail = self._best
        chosen: list[int] = []
        while trail is not None:
            trail, candidate = trail
            chosen.append(candidate)
        proven = self._floor + (value if exact else self._proven)
        return Outcome(self._floor + value, tuple(reversed(chosen)), proven, *work)

    def _widths(self) -> Iterator[int | None]:
        """The width of each pass; how many passes there are depends on whether there is a cover by then."""
        last = self._budget.width
        if last is None:
            yield from _WIDTHS
            return
        yield from (width for width in _WIDTHS if width is not None and width < last)
        yield last
        furthest = last * _WIDENING**_WIDENINGS
        while self._best is None and (last < furthest or not self._budget.spent):
            last *= _WIDENING
            yield last

    def _must_end(self, width: int | None) -> bool:
        """Whether a pass goes on when the budget is spent, because without it there is no answer at all."""
        if width == _WIDTHS[0]:
            return True
        last = self._budget.width
        return self._best is None and last is not None and width is not None and width <= last * _WIDENING**_WIDENINGS

    @property
    def _limit(self) -> float:
        """States of this value or more are of no use."""
        return math.inf if self._best is None else self._best[0]

    def _pass(self, width: int | None) -> int | None:
        """Search with at most `width` states a layer.

        The least value that anything cut off could still have led to; None when nothing was cut, so that the best is
        proven.
        """
        size = len(self._moves)
        layers: list[dict[tuple[int, Open], State]] = [{} for _ in range(size + 1)]
        layers[0][0, ()] = (0, 0, (), None)
        cut: int | None = None
        must_end, limit = self._must_end(width), self._limit
        for position in range(size):
            layer = layers[position]
            if not layer:
                continue
            layers[position] = {}  # so that its memory can be used again
            self._furthest = max(self._furthest, position)
            states = self._undominated(layer)
            if width is not None and len(states) > width:
                states, beyond = self._best_of(position, states, width)
                cut = beyond if cut is None or (beyond is not None and beyond < cut) else cut
            for done, state in enumerate(states):
                if done % _CHECK_EVERY == 0 and not must_end and self._budget.spent:
                    left = [open_[0] for open_ in states[done:]]
                    left.extend(open_[0] for later in layers for open_ in later.values())
                    return min(left if cut is None else [*left, cut])
                self._budget.states -= 1
                self._expanded += 1
                trail = state[3]
                for reached, after, covered, then, candidate in self._successors(position, state, limit):
                    key = (covered, then)
                    known = layers[after].get(key)
                    if known is None or reached < known[0]:
                        layers[after][key] = (reached, covered, then, (trail, candidate))
        for value, _, _, trail in layers[size].values():
            if self._best is None or value < self._best[0]:
                self._best = (value, trail)
        return cut

    def _successors(self, position: int, state: State, limit: float) -> Iterator[tuple[int, int, int, Open, int]]:
        """What one more move leads to, below `limit`: value, position, covered beyond it, open, candidate."""
        value, ahead, open_, _ = state
        for move in self._moves[position]:
            weight, nodes, _, _, above, _, candidate = move
            reached = value + weight
            if reached >= limit:
                return  # moves are sorted by weight
            if ahead & nodes:
                continue
            covered = ahead | nodes
            then: Open = ()
            if open_ or self._tracking or above & ~covered:
                added = self._partitions.add(open_, covered, move)
                if added is None:
                    continue
                paid, then = added
                reached += paid
                if paid and reached >= limit:
                    continue
            steps = (covered ^ (covered + 1)).bit_length() - 1  # the ones at the low end
            if then:
                then = shifted(then, steps)
            yield reached, position + steps, covered >> steps, then, candidate

    def _best_of(self, position: int, states: list[State], width: int) -> tuple[list[State], int | None]:
        """The `width` best, best first, and a value that nothing that follows from the others is below.

        Looking ahead may leave fewer than `width`, and nothing cut: states that lead to nothing of use are not missed.
        """
        if not self._budget.look_ahead:
            return states[:width], states[width][0]
        ranked = []
        for state in states:
            rank = self._least_after(position, state, self._budget.look_ahead, self._limit)
            if rank is not None:
                ranked.append((rank, state))
        ranked.sort(key=lambda pair: pair[0])
        return [state for _, state in ranked[:width]], ranked[width][0] if len(ranked) > width else None

    def _least_after(self, position: int, state: State, moves: int, limit: float) -> int | None:
        """The least value below `limit` that so many further moves can reach; None when there is none."""
        if moves == 0 or position == len(self._moves):
            return state[0]
        best: int | None = None
        for reached, after, covered, then, _ in self._successors(position, state, limit):
            # Values never fall, so what is no better by now never will be.
            if best is None or reached < best:
                least = self._least_after(after, (reached, covered, then, None), moves - 1, limit)
                if least is not None and (best is None or least < best):
                    best = limit = least
        return best

    def _undominated(self, layer: dict[tuple[int, Open], State]) -> list[State]:
        """The states that may still lead to a best cover, best first."""
        limit = self._limit
        if len(layer) == 1:
            return [state for state in layer.values() if state[0] < limit]
        states = sorted(layer.values(), key=lambda state: state[:3])
        kept: list[State] = []
        rivals: dict[int, list[tuple[int, frozenset[Row]]]] = {}
        is_cheaper = self._partitions.is_cheaper
        for state in states:
            value, covered, open_, _ = state
            if value >= limit:
                break
            better = rivals.setdefault(covered, [])
            rows = frozenset(open_)
            if len(rows) == len(open_):  # twins, which sets do not count, are too rare to be worth more
                if any(is_cheaper(value - other, theirs, rows) for other, theirs in better):
                    continue
                if len(better) < _RIVALS:
                    better.append((value, rows))
            kept.append(state)
        return kept


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
