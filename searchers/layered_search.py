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
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from searchers.bounds import node_shares, positions
from searchers.moves import Move, Moves
from searchers.open_partitions import Open, OpenPartitions, shifted

#: States kept per layer, pass by pass; the last pass keeps all.
_WIDTHS = (16, 128, 1024, 8192, None)
#: With how many better states of the same covered nodes a state is compared.
_RIVALS = 48

#: How many states are expanded between two looks at the budget.
_CHECK_EVERY = 256

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
    """

    deadline: float
    states: int

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
    """

    value: int | None
    chosen: tuple[int, ...]
    lower_bound: int | None
    exact: bool
    expanded: int
    furthest: int


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
        for width in _WIDTHS:
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
        if self._best is None:
            return Outcome(None, (), None, exact, self._expanded, self._furthest)
        value, trail = self._best
        chosen: list[int] = []
        while trail is not None:
            trail, candidate = trail
            chosen.append(candidate)
        proven = value if exact else self._proven
        return Outcome(
            self._floor + value, tuple(reversed(chosen)), self._floor + proven, exact, self._expanded, self._furthest
        )

    def _pass(self, width: int | None) -> int | None:
        """Search with at most `width` states a layer.

        The least value that anything cut off could still have led to; None when nothing was cut, so that the best is
        proven.
        """
        size = len(self._moves)
        layers: dict[int, dict[tuple[int, Open], State]] = {0: {(0, ()): (0, 0, (), None)}}
        cut: int | None = None
        narrow = width == _WIDTHS[0]  # the first pass always ends: without it there is no answer at all
        for position in range(size):
            layer = layers.pop(position, None)
            if layer is None:
                continue
            self._furthest = max(self._furthest, position)
            states = self._undominated(layer)
            if width is not None and len(states) > width:
                cut = min(states[width][0], cut if cut is not None else states[width][0])
                del states[width:]
            for done, state in enumerate(states):
                if done % _CHECK_EVERY == 0 and not narrow and self._budget.spent:
                    left = [open_[0] for open_ in states[done:]]
                    left.extend(open_[0] for later in layers.values() for open_ in later.values())
                    return min(left if cut is None else [*left, cut])
                self._budget.states -= 1
                self._expanded += 1
                self._expand(position, state, layers)
        for value, _, _, trail in layers.get(size, {}).values():
            if self._best is None or value < self._best[0]:
                self._best = (value, trail)
        return cut

    def _expand(self, position: int, state: State, layers: dict[int, dict[tuple[int, Open], State]]) -> None:
        value, ahead, open_, trail = state
        limit = None if self._best is None else self._best[0]
        for move in self._moves[position]:
            reached = value + move.weight
            if limit is not None and reached >= limit:
                return  # moves are sorted by weight
            if ahead & move.nodes:
                continue
            covered = ahead | move.nodes
            then: Open = ()
            if open_ or self._tracking or move.above & ~covered:
                added = self._partitions.add(open_, covered, move)
                if added is None:
                    continue
                paid, then = added
                reached += paid
                if paid and limit is not None and reached >= limit:
                    continue
            steps = (~covered & (covered + 1)).bit_length() - 1
            covered >>= steps
            if then:
                then = shifted(then, steps)
            layer = layers.setdefault(position + steps, {})
            key = (covered, then)
            known = layer.get(key)
            if known is None or reached < known[0]:
                layer[key] = (reached, covered, then, (trail, move.candidate))

    def _undominated(self, layer: dict[tuple[int, Open], State]) -> list[State]:
        """The states that may still lead to a best cover, best first."""
        limit = None if self._best is None else self._best[0]
        states = sorted(layer.values(), key=lambda state: state[:3])
        kept: list[State] = []
        rivals: dict[int, list[State]] = {}
        for state in states:
            if limit is not None and state[0] >= limit:
                break
            better = rivals.setdefault(state[1], [])
            if any(self._partitions.is_cheaper(state[0] - other[0], other[2], state[2]) for other in better):
                continue
            kept.append(state)
            if len(better) < _RIVALS:
                better.append(state)
        return kept


def _reduced(moves: Moves, shares: list[int]) -> list[list[Move]]:
    """The moves with what they cost beyond their nodes' shares, cheapest first."""
    result = []
    for first, starting in enumerate(moves.starting):
        reduced = [
            move._replace(weight=move.weight - sum(shares[p] for p in positions(move.nodes, first)))
            for move in starting
        ]
        result.append(sorted(reduced, key=lambda move: move.weight))
    return result
