"""Open partitions: what a partial cover has to remember about the partitions it has chosen.

The set of covered nodes alone is not a sufficient state, for two reasons.

*Acyclicity.* A chosen partition may wait for nodes that are not covered yet (in the butterfly, {a1,a2} waits for b1).
The candidates that will cover those nodes must not depend on the partition. So with each chosen partition go the
uncovered nodes that have to run *before* it, directly or through other partitions; choosing a candidate that reads the
partition and contains one of them closes a cycle. A cycle is closed already when every way to cover the rest closes it:
when partitions form a ring, each feeding a node before the next. Such states are dropped at once, so no state is a dead
end if every node can be covered on its own.

*Transitions.* They are paid for once per ordered pair of neighbouring partitions of two backends, and their bytes once
per tensor and reading partition. So with each chosen partition that still has uncovered neighbours goes its backend,
and, where bytes cost something, the edges to its uncovered readers. A node on the host hands on what it reads
(`collage.search.hand_over`): in its place it leaves one open partition of the backend of each that it has read. When it
is chosen, all that it reads is covered, because it comes first among the uncovered nodes.

A partition that neither waits for anything nor can cause a transition is forgotten, so that states that only differ in
it become one. Nearly all are: on most networks without transition costs no partition is ever open.
"""

from __future__ import annotations

from searchers.cover_search.future_charges import FutureCharges
from searchers.cover_search.moves import Move, Moves

#: (backend or -1 where it does not matter, uncovered readers, uncovered nodes read, uncovered nodes that must run
#: before, edges to uncovered readers where bytes cost something), bit sets relative to the first uncovered node; the
#: last one to the first edge into that.
Row = tuple[int, int, int, int, int]
#: One row per open partition; sorted, so that equal states are equal.
Open = tuple[Row, ...]


class OpenPartitions:
    """The rules by which open partitions evolve, for given moves and what transitions cost among them."""

    def __init__(self, moves: Moves) -> None:
        self.transitions = transitions = moves.transitions
        self.carried = moves.carried
        self._host = moves.host
        entering = list(zip(*transitions, strict=True))
        bytes_out = [[any(values) for values in row] for row in moves.carried] or [[False]] * len(transitions)
        self._leaving = [max(row) > 0 or any(out) for row, out in zip(transitions, bytes_out, strict=True)]
        self._entering = [
            max(column) > 0 or any(out[b] for out in bytes_out if len(out) > b) for b, column in enumerate(entering)
        ]
        self._handing = [any(out) for out in bytes_out]
        self._most = FutureCharges(moves)

    def add(self, open_: Open, covered: int, move: Move) -> tuple[int, Open] | None:
        """What choosing `move` costs in transitions, and what is open then; None when a cycle is unavoidable.

        `covered` includes the move's nodes; both are relative to the move's first node, and so is the result.
        """
        nodes, feeds, wants, mine = move.nodes, move.feeds, move.wants, move.backend
        transitions, carried = self.transitions, self.carried
        on_host = mine == self._host
        above = move.above & ~covered
        paid = 0
        origins: list[int] = []
        early: list[tuple[int, int]] = []
        for backend, readers, read, before, edges in open_:
            if readers & nodes:
                above |= before
                if not transitions or backend < 0:
                    continue
                if on_host:
                    origins.append(backend)
                    continue
                paid += transitions[backend][mine]
                if edges:
                    values = carried[backend][mine]
                    paid += sum([values[source] for bit, source in move.entering if edges & bit])
            elif read & nodes:
                early.append((backend, read))
        if above & nodes:
            return None
        for backend, read in early:
            for producer in origins if on_host else (mine,):
                paid += transitions[producer][backend]
                if carried:
                    values = carried[producer][backend]
                    paid += sum([values[source] for bit, source in move.giving if read & bit])

        result = []
        merged: dict[int, int] = {}
        uncovered = ~nodes
        waiting = above
        left = feeds & ~covered
        edges = self._edges_left(move, covered) if carried and left else 0
        producers = origins or [-1] if on_host else [mine if transitions else -1]
        touched = [(backend, left, 0 if on_host else wants & ~covered, above, edges) for backend in producers]
        for row in open_:
            backend, readers, read, before, _ = row
            waiting |= before
            if backend < 0 or (readers | read | before) & nodes:
                touched.append(row)
            else:
                result.append(row)
        for backend, readers, read, before, edges in touched:
            if before & nodes:
                before |= above
            readers &= uncovered
            before = before & uncovered if readers else 0
            if backend >= 0:
                read = read & uncovered if self._entering[backend] else 0
                if not before and not self._leaving[backend]:
                    readers = 0
                if read or (readers and self._leaving[backend]):
                    edges = edges & ~move.into if readers and self._handing[backend] else 0
                    result.append((backend, readers, read, before, edges))
                    continue
            if before:
                merged[before] = merged.get(before, 0) | readers
        result.extend((-1, readers, 0, before, 0) for before, readers in merged.items())
        if waiting and _in_a_ring([(readers, before) for _, readers, _, before, _ in result if before]):
            return None
        result.sort()
        return paid, tuple(result)

    def is_cheaper(self, lead: int, position: int, mine: frozenset[Row], theirs: frozenset[Row]) -> bool:
        """Whether a state with `mine` open that is `lead` cheaper stays so, or is as good as, one with `theirs`.

        Both cover the same nodes, the first uncovered one being at `position`, and neither has two equal rows. True
        means that every completion of the other is a completion of this one, and costs less, or the same where nothing
        tells the states apart.
        """
        different, unmatched = mine - theirs, set(theirs - mine)
        extra = 0
        for backend, readers, read, before, edges in different:
            if before and not any(not readers & ~r and not before & ~b for _, r, _, b, _ in theirs):
                return False  # some completion may be acyclic with theirs and not with mine
            if backend < 0:
                continue
            twin = next(
                (row for row in unmatched if row[0] >= 0 and row[1] == readers and row[2] == read and row[4] == edges),
                None,
            )
            if twin is not None:
                unmatched.remove(twin)
            extra += self._most.of(backend, None if twin is None else twin[0], position, readers, read, edges)
            if extra > lead:
                return False
        return lead > extra or extra == 0

    @staticmethod
    def _edges_left(move: Move, covered: int) -> int:
        """The edges that leave a move whose readers are not covered."""
        if not move.feeds & covered:
            return move.edges
        return sum([bit for reader, bit in move.leaving if not covered & reader])


def _in_a_ring(waiting: list[tuple[int, int]]) -> bool:
    """Whether some of these (readers, nodes that must run before) wait for each other in a ring."""
    while waiting:
        # A partition that waits for no reader of any is in no ring, and no ring leads through it.
        left = [row for row in waiting if any(readers & row[1] for readers, _ in waiting)]
        if len(left) == len(waiting):
            return True
        waiting = left
    return False


def shifted(open_: Open, steps: int, edges: int) -> Open:
    """The same, relative to a first uncovered node `steps` later, and so many edges later."""
    return tuple(
        (backend, readers >> steps, read >> steps, before >> steps, handed >> edges)
        for backend, readers, read, before, handed in open_
    )
