"""Label search: the cover of least cost that uses no more of a resource than a limit allows, such as an error budget.

It is a resource-constrained shortest path over the states of the layered search (Irnich and Desaulniers, *Shortest Path
Problems with Resource Constraints*, in Column Generation, 2005). A *label* is a state with what its cover has used so
far. Of two labels one dominates the other if it dominates as a state (`searchers.cover_search.partial_covers`) and has
used no more.

With a *price* on what is used, weights are those of the Lagrangian. A cover within the limit that is better than the
best known one weighs less than that one's cost plus the price of the whole limit. A label is dropped in two cases: its
rank, a lower bound of the weight of all that follows from it, is no less; or its rest uses more than is left.

All else is the layered search's: passes of growing width, potentials, and a bound from the labels that were cut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from searchers.cover_search.bounds import node_shares, offsets
from searchers.cover_search.crossings import partitions_of
from searchers.cover_search.layered_search import CHECK_EVERY, Budget, LayeredSearch, Outcome
from searchers.cover_search.moves import Moves, with_weights
from searchers.cover_search.open_partitions import Open, Row
from searchers.cover_search.partial_covers import START, Opened, State

#: (value without the price of what is used, used, open partitions, state)
_Label = tuple[int, int, Open, State]

#: With how many groups of labels of the same covered nodes, and other open partitions, a label is compared.
_COMPARED = 48


class LabelSearch(LayeredSearch):
    """One search; `run` may be called once.

    The value of its `Outcome` is a cost plus `price * most`, and so is the bound. Where nothing better was found than
    `below`, there is no candidate in it.

    Parameters
    ----------
    moves
        With what each uses (`Move.used`), and weights without a price.
    price
        Packed value per unit.
    most
        Units that a cover may use.
    below
        Packed value that a cover has to be below; None for any cover.
    """

    def __init__(
        self,
        moves: Moves,
        price: int,
        most: int,
        below: int | None,
        budget: Budget,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(with_weights(moves, lambda move: move.weight + price * move.used), budget, progress)
        self._price, self._most = price, most
        self._is_cheaper = partitions_of(moves).is_cheaper
        self._least = node_shares(with_weights(moves, lambda move: move.used))
        self._least_from = [0] * (len(self._least) + 1)
        for position in reversed(range(len(self._least))):
            self._least_from[position] = self._least_from[position + 1] + self._least[position]
        if below is not None:
            self._best = below + price * most, None

    def run(self) -> Outcome:
        if self._best is not None and self._may_tighten:
            self._tighten(self._best[0])
        return super().run()

    def _widths(self) -> Iterator[int | None]:
        return self._widths_of_covers()

    def _must_end(self, width: int | None) -> bool:
        """There is an answer already."""
        return False

    def _pass(self, width: int | None) -> int | None:
        covers, size, most = self._covers, self._covers.size, self._most
        layers: list[dict[tuple[int, Open, int], State]] = [{} for _ in range(size + 1)]
        if self._least_from[0] <= most:
            layers[0][0, (), 0] = START
        cut: int | None = None
        limit, rank_limit = self._limits
        for position in range(size):
            layer, layers[position] = layers[position], {}
            if not layer:
                continue
            self._furthest = max(self._furthest, position)
            labels = self._undominated(position, layer, rank_limit)
            if width is not None and len(labels) > width:
                labels.sort(key=lambda label: label[3][4])
                cut = labels[width][3][4] if cut is None else min(cut, labels[width][3][4])
                del labels[width:]
            opened: dict[tuple[int, Open], Opened] = {}
            for done, (_, used, open_, state) in enumerate(labels):
                if done % CHECK_EVERY == 0 and self._budget.spent:
                    left = [label[3][4] for label in labels[done:]]
                    left.extend(state[4] for later in layers for state in later.values())
                    return covers.bound + min(left if cut is None else [*left, cut])
                self._budget.states -= 1
                self._expanded += 1
                known_moves = opened.setdefault((state[1], open_), {})
                for step in covers.steps(position, state, limit, rank_limit, known_moves):
                    after, reached, covered, then, _, move = step
                    uses = used + move.used
                    if uses + self._least_left(after, covered) > most:
                        continue
                    known = layers[after].get((covered, then, uses))
                    if known is None or reached < known[0]:
                        layers[after][covered, then, uses] = covers.state(position, state, step)
        for (_, _, used), state in layers[size].items():
            value = covers.floor + state[0] + self._price * (most - used)
            if self._best is None or value < self._best[0]:
                self._best = value, state[3]
        return None if cut is None else covers.bound + cut

    def _least_left(self, position: int, covered: int) -> int:
        """What the rest uses at least; `covered` is relative to `position`."""
        least = self._least_from[position]
        if covered:
            least -= sum([self._least[position + offset] for offset in offsets(covered)])
        return least

    def _undominated(self, position: int, layer: dict[tuple[int, Open, int], State], rank_limit: float) -> list[_Label]:
        """The labels at a position that may still lead to a better cover."""
        labels = [
            (state[0] - self._price * used, used, open_, state)
            for (_, open_, used), state in layer.items()
            if state[4] < rank_limit
        ]
        if len(labels) < 2:
            return labels
        labels.sort(key=lambda label: (label[3][1], label[0], label[1], label[2]))
        kept: list[_Label] = []
        covered: int | None = None
        groups: dict[Open, _Group] = {}
        for label in labels:
            value, used, open_, state = label
            if state[1] != covered:
                covered, groups = state[1], {}
            group = groups.get(open_)
            if group is not None and group.used[-1] >= -used:
                continue
            rows = frozenset(open_)
            plain = len(rows) == len(open_)  # twins, which sets do not count, are too rare to be worth more
            if plain and any(
                other is not group and self._dominates(other, position, value, used, rows) for other in groups.values()
            ):
                continue
            if group is None and plain and len(groups) < _COMPARED:
                group = groups[open_] = _Group(rows)
            if group is not None:
                group.used.append(-used)
                group.values.append(value)
            kept.append(label)
        return kept

    def _dominates(self, group: _Group, position: int, value: int, used: int, rows: frozenset[Row]) -> bool:
        """Whether the cheapest label of a group that used no more dominates another one."""
        first = bisect_left(group.used, -used)
        if first == len(group.used):
            return False
        return self._is_cheaper(value - group.values[first], position, group.rows, rows)


class _Group:
    """Labels of the same covered nodes and open partitions, of ascending value and falling use (negated, to ascend)."""

    def __init__(self, rows: frozenset[Row]) -> None:
        self.rows = rows
        self.values: list[int] = []
        self.used: list[int] = []
