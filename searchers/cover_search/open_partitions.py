"""Open partitions: what a partial cover has to remember about the partitions it has chosen.

The set of covered nodes alone is not a sufficient state, for two reasons.

*Acyclicity.* A chosen partition may wait for nodes that are not covered yet (in the butterfly, {a1,a2} waits for b1).
What covers those must not depend on the partition. So with each chosen partition go the uncovered nodes that have to
run *before* it, directly or through other partitions; choosing a candidate that reads the partition and contains one of
them closes a cycle. It is closed already when every way to cover the rest closes it: partitions of which each
feeds a node before the next, in a ring. Dropping such states at once means that where every node can be covered
on its own no state is a dead end.

*Transitions.* A tensor that crosses backends is paid for once per ordered pair of neighbouring partitions, so with each
chosen partition that still has uncovered neighbours goes its backend.

A partition that neither waits for anything nor can cause a transition is forgotten, so that states which only differ in
it become one. Nearly all are: on most networks without transition costs nothing is ever open.
"""

from __future__ import annotations

from collections.abc import Sequence

from searchers.cover_search.moves import Move

#: (backend or -1 where it does not matter, uncovered readers, uncovered nodes read, uncovered nodes that must run
#: before), bit sets relative to the first uncovered node.
Row = tuple[int, int, int, int]
#: One row per open partition; sorted, so that equal states are equal.
Open = tuple[Row, ...]


class OpenPartitions:
    """The rules by which open partitions evolve, for given transition values (`Moves.transitions`)."""

    def __init__(self, transitions: Sequence[Sequence[int]]) -> None:
        self.transitions = transitions
        entering = list(zip(*transitions, strict=True))
        self._leaving = [max(row) for row in transitions]
        self._entering = [max(column) for column in entering]
        #: how much more leaving (entering) backend a may cost than backend b, whatever is on the other side
        self._leaving_more = _excess(transitions)
        self._entering_more = _excess(entering)

    def add(self, open_: Open, covered: int, move: Move) -> tuple[int, Open] | None:
        """What choosing `move` costs in transitions, and what is open then; None when a cycle is unavoidable.

        `covered` includes the move's nodes; both are relative to the move's first node, and so is the result.
        """
        _, nodes, feeds, wants, above, mine, _ = move
        transitions = self.transitions
        above &= ~covered
        paid = 0
        for backend, readers, read, before in open_:
            if readers & nodes:
                above |= before
                if transitions and backend >= 0:
                    paid += transitions[backend][mine]
            elif read & nodes:
                paid += transitions[mine][backend]
        if above & nodes:
            return None

        result = []
        merged: dict[int, int] = {}
        uncovered = ~nodes
        waiting = above
        touched = [(mine if transitions else -1, feeds & ~covered, wants & ~covered, above)]
        for row in open_:
            backend, readers, read, before = row
            waiting |= before
            if backend < 0 or (readers | read | before) & nodes:
                touched.append(row)
            else:
                result.append(row)
        for backend, readers, read, before in touched:
            if before & nodes:
                before |= above
            readers &= uncovered
            before = before & uncovered if readers else 0
            if backend >= 0:
                read = read & uncovered if self._entering[backend] else 0
                if not before and not self._leaving[backend]:
                    readers = 0
                if read or (readers and self._leaving[backend]):
                    result.append((backend, readers, read, before))
                    continue
            if before:
                merged[before] = merged.get(before, 0) | readers
        result.extend((-1, readers, 0, before) for before, readers in merged.items())
        if waiting and _in_a_ring([(readers, before) for _, readers, _, before in result if before]):
            return None
        result.sort()
        return paid, tuple(result)

    def is_cheaper(self, lead: int, mine: frozenset[Row], theirs: frozenset[Row]) -> bool:
        """Whether a state with `mine` open that is `lead` cheaper stays so, or is as good as, one with `theirs`.

        Both cover the same nodes, and neither has two equal rows. True means that every completion of the other is a
        completion of this one, and costs less, or the same where nothing tells the states apart.
        """
        different, unmatched = mine - theirs, set(theirs - mine)
        extra = 0
        for backend, readers, read, before in different:
            if before and not any(not readers & ~r and not before & ~b for _, r, _, b in theirs):
                return False  # some completion may be acyclic with theirs and not with mine
            if backend < 0:
                continue
            twin = next((row for row in unmatched if row[0] >= 0 and row[1] == readers and row[2] == read), None)
            if twin is None:
                leaving, entering = self._leaving[backend], self._entering[backend]
            else:
                unmatched.remove(twin)
                leaving, entering = self._leaving_more[backend][twin[0]], self._entering_more[backend][twin[0]]
            extra += readers.bit_count() * leaving + read.bit_count() * entering
            if extra > lead:
                return False
        return lead > extra or extra == 0


def _excess(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Per pair of rows, by how much the one exceeds the other at most, and not below zero."""
    return [[max(0, *(x - y for x, y in zip(one, other, strict=True))) for other in rows] for one in rows]


def _in_a_ring(waiting: list[tuple[int, int]]) -> bool:
    """Whether some of these (readers, nodes that must run before) wait for each other in a ring."""
    while waiting:
        # A partition that waits for no reader of any is in no ring, and no ring leads through it.
        left = [row for row in waiting if any(readers & row[1] for readers, _ in waiting)]
        if len(left) == len(waiting):
            return True
        waiting = left
    return False


def shifted(open_: Open, steps: int) -> Open:
    """The same, relative to a first uncovered node `steps` later."""
    return tuple(
        (backend, readers >> steps, read >> steps, before >> steps) for backend, readers, read, before in open_
    )
