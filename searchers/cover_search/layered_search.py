"""Layered search: Dijkstra's algorithm over partial covers (RFC 0062, phase 3), by first uncovered node.

An edge from one state (`searchers.cover_search.partial_covers`) to another is a candidate that contains the first
uncovered node. Every edge leads to a later first uncovered node, so layers are taken in order, each state is final when
it is expanded, and no heap is needed. If no node beyond the first uncovered one is covered, as at an articulation point
of the network, a layer holds few states: the search decomposes there by itself.

Three measures keep layers small. Dominated states are dropped. A state is dropped if its rank, a lower bound on all
that follows from it, reaches the best cover known. And the search runs in passes of growing *width*, the number of
states kept per layer: early passes find good covers, which make later passes prune more; the pass in which no layer was
cut proves the optimum. The states that were cut give a lower bound at any time, so a search that runs out of budget
still says how far from the optimum it may be.

The first pass uses a cheap bound without transitions (`searchers.cover_search.bounds`). If transitions cost something
and its cover is not proven best, the bound is made tighter (`searchers.cover_search.edge_potentials`) before the
following passes, and candidates that no better cover contains are dropped.

A beam search is the same with a last width that does cut (`Budget.width`). It may also *look ahead* where it cuts:
states are then ranked by the least that they can reach in so many further moves. That is also a lower bound on all that
follows from them, and it shows dead ends before they are entered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from searchers.cover_search.edge_potentials import EdgePotentials
from searchers.cover_search.moves import Moves
from searchers.cover_search.open_partitions import Open
from searchers.cover_search.partial_covers import START, PartialCovers, State, Trail

#: States kept per layer, pass by pass; the last pass keeps all.
_WIDTHS = (16, 128, 1024, 8192, None)

#: The first pass with a tight bound, which leaves few states to choose from.
_NARROW = 2

#: The bound is swept at least and at most so often, and no longer when two sweeps close less than this part of the gap.
_SWEEPS, _MOST_SWEEPS, _WORTH = 4, 24, 64

#: How many states are expanded between two looks at the budget.
CHECK_EVERY = 256
#: A beam in which every state came to a dead end is widened by this factor until there is a cover, and so many times
#: whatever the budget says: an answer that is late is better than none.
_WIDENING, _WIDENINGS = 4, 4


@dataclass
class Budget:
    """Ends a search.

    Attributes
    ----------
    deadline
        On the clock of `time.monotonic`.
    states
        How many more may be expanded.
    width
        States kept per layer in the last pass; more only where no cover was found otherwise. None keeps all.
    look_ahead
        By how many further moves states are ranked where a layer is cut.
    tighten
        Whether the bound is made tighter after the first pass; without, the search is one of covers only.
    """

    deadline: float
    states: int
    width: int | None = None
    look_ahead: int = 0
    tighten: bool = False

    @property
    def spent(self) -> bool:
        return self.states <= 0 or time.monotonic() >= self.deadline


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes
    ----------
    value
        Packed value of the best cover; None when none was found.
    chosen
        Its candidates, as indices into `Objective.candidates`, in order of their first node.
    lower_bound
        Packed value that no cover is below; equals `value` when the cover is proven best. None when there is no cover.
    exact
        Whether the search ended by itself.
    expanded
        Number of states expanded.
    furthest
        The position that no partial cover got beyond, for messages when there is no cover.
    width
        States kept per layer in the last pass; None when it kept all.
    spent
        Whether the budget was spent by the end.
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
        self._moves = moves
        self._covers = PartialCovers(moves)
        self._budget = budget
        self._progress = progress
        self._best: tuple[int, Trail] | None = None
        self._proven = self._covers.bound
        self._may_tighten = budget.tighten and bool(moves.transitions)
        self._tight = False
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
            self._prove(cut)
            self._progress(f"searching: {self._expanded} states, width {width or 'unlimited'}")
            if self._best is not None and self._may_tighten:
                self._tighten(self._best[0])
            if self._best is not None and (self._proven >= self._best[0] or self._budget.spent):
                exact = self._proven >= self._best[0]
                break
        work = (exact, self._expanded, self._furthest, width, self._budget.spent)
        if self._best is None:
            return Outcome(None, (), None, *work)
        value, trail = self._best
        chosen: list[int] = []
        while trail is not None:
            trail, candidate = trail
            chosen.append(candidate)
        return Outcome(value, tuple(reversed(chosen)), value if exact else self._proven, *work)

    def _prove(self, bound: int) -> None:
        """No cover that is better than the best one is below this value."""
        self._proven = max(self._proven, bound if self._best is None else min(bound, self._best[0]))

    def _tighten(self, best: int) -> None:
        """Make the bound tighter, as long as that closes the gap to the best cover noticeably.

        A sweep takes a small part of the time of the first pass, so a few are made whatever the budget says.
        """
        self._may_tighten = False
        potentials = EdgePotentials(self._moves)
        before = self._proven
        for sweep in range(_MOST_SWEEPS):
            potentials.sweep(forwards=sweep % 2 == 0)
            if potentials.floor >= best or (sweep + 1 >= _SWEEPS and self._budget.spent):
                break
            if sweep % 2 == 1:
                if sweep + 1 >= _SWEEPS and (potentials.floor - before) * _WORTH < best - potentials.floor:
                    break
                before = potentials.floor
        if potentials.floor > self._covers.bound:
            self._tight = True
            self._covers.tighten(potentials.result(), best)
            self._prove(self._covers.bound)

    def _widths(self) -> Iterator[int | None]:
        """The width of each pass; how many passes there are depends on what is found and proven by then."""
        for width in self._widths_of_covers():
            yield width
            if self._tight:
                break
        else:
            return
        last = self._budget.width
        if last is None or last > _NARROW:
            yield _NARROW
        yield from self._widths_of_covers()

    def _widths_of_covers(self) -> Iterator[int | None]:
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
        if self._tight:
            return False
        if width == _WIDTHS[0]:
            return True
        last = self._budget.width
        return self._best is None and last is not None and width is not None and width <= last * _WIDENING**_WIDENINGS

    @property
    def _limits(self) -> tuple[float, float]:
        """States of this value, or of this rank, or more are of no use."""
        if self._best is None:
            return math.inf, math.inf
        return self._best[0] - self._covers.floor, self._best[0] - self._covers.bound

    def _pass(self, width: int | None) -> int | None:
        """Search with at most `width` states a layer.

        The least value of a cover that anything cut off could still have led to; None when nothing was cut, so that the
        best is proven.
        """
        covers, size = self._covers, self._covers.size
        layers: list[dict[tuple[int, Open], State]] = [{} for _ in range(size + 1)]
        layers[0][0, ()] = START
        cut: int | None = None
        must_end, (limit, rank_limit) = self._must_end(width), self._limits
        for position in range(size):
            layer = layers[position]
            if not layer:
                continue
            layers[position] = {}  # so that its memory can be used again
            self._furthest = max(self._furthest, position)
            states = covers.undominated(position, layer, rank_limit)
            if width is not None and len(states) > width:
                states, beyond = self._best_of(position, states, width)
                cut = beyond if cut is None or (beyond is not None and beyond < cut) else cut
            for done, state in enumerate(states):
                if done % CHECK_EVERY == 0 and not must_end and self._budget.spent:
                    left = [state[4] for state in states[done:]]
                    left.extend(state[4] for later in layers for state in later.values())
                    return covers.bound + min(left if cut is None else [*left, cut])
                self._budget.states -= 1
                self._expanded += 1
                for step in covers.steps(position, state, limit, rank_limit):
                    after, reached, covered, then, _, _ = step
                    known = layers[after].get((covered, then))
                    if known is None or reached < known[0]:
                        layers[after][covered, then] = covers.state(position, state, step)
        for value, _, _, trail, _, _ in layers[size].values():
            if self._best is None or covers.floor + value < self._best[0]:
                self._best = covers.floor + value, trail
        return None if cut is None else covers.bound + cut

    def _best_of(self, position: int, states: list[State], width: int) -> tuple[list[State], int | None]:
        """The `width` best, best first, and a rank that nothing that follows from the others is below.

        Looking ahead may leave fewer than `width`, and nothing cut: states that lead to nothing of use are not missed.
        """
        if not self._budget.look_ahead:
            ranked = sorted([(state[4], state) for state in states], key=lambda pair: pair[0])
        else:
            ranked = []
            for state in states:
                rank = self._covers.least_after(position, state, self._budget.look_ahead, *self._limits)
                if rank is not None:
                    ranked.append((rank, state))
            ranked.sort(key=lambda pair: pair[0])
        return [state for _, state in ranked[:width]], ranked[width][0] if len(ranked) > width else None
