"""Edge potentials: shares of the cost for every node that leave room for the cost of transitions.

Take any value that flows from a node u to a node v. It charges the partition of u an amount that depends on that
partition's backend a: the edge's *potential* for a. It charges the partition of v the least, over all a, that is then
left of the transition. Whatever the potentials, a cover is charged no more than it pays in transitions, so shares
(`searchers.cover_search.bounds`) under weights that include the charges are a lower bound on every cover with its
transitions. They are a feasible dual solution of the linear program in which every edge has a pair of backends;
acyclicity is left out.

The potentials come from sweeps over the nodes, forth and back. Each sweep evens out what the backends cost up to a
node, by passing the differences on along its edges. That is sequential tree-reweighted message passing (Kolmogorov,
*Convergent Tree-Reweighted Message Passing for Energy Minimization*, PAMI 2006), with candidates in the place of labels
of single nodes. On a chain one sweep is Dijkstra's algorithm over (node, backend), and the bound is the optimum.

Two neighbouring partitions pay a transition once, however many values they exchange. So the charges of several edges
from one node to one candidate are joined. If several values leave a candidate, and one candidate beside it might read
them all, the charge may be too high. If the first candidate is dear anyway, as large ones mostly are, it is given
credit for all that. Otherwise the second one is charged less by as much as the charge might be too high.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from searchers.cover_search.bounds import node_shares, offsets
from searchers.cover_search.moves import Move, Moves


class _Source(NamedTuple):
    """A node that a candidate reads, and its edges into the candidate."""

    node: int
    edges: tuple[int, ...]


class _Entry(NamedTuple):
    """One candidate.

    Attributes
    ----------
    weight
        The candidate's own, less its credit.
    members
        The positions inside.
    sources
        What it reads.
    entering
        The edges into it, when each source has one and `together` is empty; then nothing else is to be known.
    leaving
        The edges that leave it.
    together
        (backend, indices of sources) of candidates beside it without credit that contain several of its sources.
    """

    move: Move
    weight: int
    members: tuple[int, ...]
    sources: tuple[_Source, ...]
    entering: tuple[int, ...] | None
    leaving: tuple[int, ...]
    together: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Potentials:
    """A lower bound and what it consists of.

    Attributes
    ----------
    floor
        The sum of the shares: packed value that no cover with its transitions is below.
    slack
        Per candidate, what its weight, less its credit, and its charges are beyond the shares of its nodes; never
        negative.
    charges
        Per candidate, (node, what the candidate is charged for its edges to or from that node), by absolute position.
    """

    floor: int
    slack: dict[int, int]
    charges: dict[int, tuple[tuple[int, int], ...]]


class EdgePotentials:
    """Finds potentials for the moves of one problem; `sweep` as often as the bound is worth it."""

    def __init__(self, moves: Moves) -> None:
        self._transitions = moves.transitions or ((0,) * len(moves.backends),) * len(moves.backends)
        #: per node, what it costs to hand on its value alone
        self._alone = _alone(self._transitions, moves.carried, len(moves.starting))
        self._backends = range(len(moves.backends))
        size = len(moves.starting)
        self._ends = [(u, v) for v in range(size) for u in moves.layout.reads[v]]
        self._into: list[list[int]] = [[] for _ in range(size)]
        self._from: list[list[int]] = [[] for _ in range(size)]
        for edge, (u, v) in enumerate(self._ends):
            self._from[u].append(edge)
            self._into[v].append(edge)
        self._runs_on: list[list[int]] = [[] for _ in range(size)]
        self._entries = self._make_entries(moves)
        self._potential = [[0] * len(moves.backends) for _ in self._ends]
        #: per edge and backend of the reader, the least that is left of the transition
        self._left = [self._least_left(edge) for edge in range(len(self._ends))]
        self._best: tuple[int, list[int], list[list[int]]] | None = None

    @property
    def floor(self) -> int:
        """The best bound of all sweeps; zero before the first."""
        return 0 if self._best is None else self._best[0]

    def sweep(self, forwards: bool) -> None:
        """Improve the potentials from the first node to the last, or from the last to the first.

        As in `searchers.cover_search.bounds`, every node's share is as much as the candidates that end there still
        allow. Of equal bounds one from a sweep backwards is kept: it charges early for what comes late, and searches go
        forwards.
        """
        size = len(self._into)
        shares = [0] * size
        ending: list[list[_Entry]] = [[] for _ in range(size)]
        for entry in self._entries:
            ending[entry.members[-1 if forwards else 0]].append(entry)
        for p in range(size) if forwards else range(size - 1, -1, -1):
            least: dict[int, int] = {}
            for entry in ending[p]:
                backend = entry.move.backend
                allowed = self._slack(entry, shares)
                if backend not in least or allowed < least[backend]:
                    least[backend] = allowed
            if not least:
                continue
            shares[p] = min(least.values())
            edges = (self._from if forwards else self._into)[p]
            if edges and (len(self._runs_on[p]) > 1 or not forwards):
                parts = max(len(self._from[p]), len(self._into[p]))
                most = max(least.values())
                self._pass_on(edges, [(least.get(b, most) - shares[p]) // parts for b in self._backends], forwards)
        # What several edges are charged together depends on all of them, also on those that were changed later.
        if any(entry.entering is None and self._slack(entry, shares) < 0 for entry in self._entries):
            shares = self._shares(ending, forwards)
        floor = sum(shares)
        if self._best is None or floor > self._best[0] or (floor == self._best[0] and not forwards):
            self._best = floor, shares, [list(row) for row in self._potential]

    def result(self) -> Potentials:
        """The best bound of all sweeps."""
        assert self._best is not None, "sweep first"
        floor, shares, self._potential = self._best
        self._left = [self._least_left(edge) for edge in range(len(self._ends))]
        slack, charges = {}, {}
        for entry in self._entries:
            move = entry.move
            charged = [(self._ends[edge][1], self._potential[edge][move.backend]) for edge in entry.leaving]
            charged += [(source.node, c) for source, c in zip(entry.sources, self._entering(entry), strict=True)]
            charges[move.candidate] = tuple([pair for pair in charged if pair[1]])
            shared = sum([shares[q] for q in entry.members])
            slack[move.candidate] = entry.weight + sum([charge for _, charge in charged]) - shared
        return Potentials(floor, slack, charges)

    def _shares(self, ending: Sequence[Sequence[_Entry]], forwards: bool) -> list[int]:
        """Shares under the potentials as they are."""
        shares = [0] * len(ending)
        for p in range(len(ending)) if forwards else range(len(ending) - 1, -1, -1):
            shares[p] = min((self._slack(entry, shares) for entry in ending[p]), default=0)
        return shares

    def _slack(self, entry: _Entry, shares: Sequence[int]) -> int:
        """What a candidate is charged beyond the shares of its nodes."""
        return self._charged(entry) - sum([shares[q] for q in entry.members])

    def _charged(self, entry: _Entry) -> int:
        """The weight of a candidate with its charges."""
        total, backend = entry.weight, entry.move.backend
        if entry.entering is None:
            total += sum(self._entering(entry))
        else:
            for edge in entry.entering:
                total += self._left[edge][backend]
        for edge in entry.leaving:
            total += self._potential[edge][backend]
        return total

    def _entering(self, entry: _Entry) -> list[int]:
        """Per source of a candidate, what is left for it to be charged of the transition from there."""
        backend, potential = entry.move.backend, self._potential
        charges = []
        for node, edges in entry.sources:
            if len(edges) == 1:
                charges.append(self._left[edges[0]][backend])
            else:
                alone = self._alone[node]
                charged = [alone[a][backend] - sum([potential[e][a] for e in edges]) for a in self._runs_on[node]]
                charges.append(min(charged, default=0))
        for other, together in entry.together:
            theirs = sum([potential[edge][other] for i in together for edge in entry.sources[i].edges])
            latency = self._transitions[other][backend]
            paid = latency + sum([self._alone[entry.sources[i].node][other][backend] - latency for i in together])
            excess = theirs + sum([charges[i] for i in together]) - paid
            if excess > 0:
                charges[together[0]] -= excess
        return charges

    def _least_left(self, edge: int) -> list[int]:
        potential, source = self._potential[edge], self._ends[edge][0]
        alone, possible = self._alone[source], self._runs_on[source]
        return [min([alone[a][b] - potential[a] for a in possible], default=0) for b in self._backends]

    def _pass_on(self, edges: Sequence[int], more: Sequence[int], forwards: bool) -> None:
        """Charge so much less at this end of the edges, by backend, and what that allows at the other."""
        for edge in edges:
            if forwards:
                self._potential[edge] = [p - m for p, m in zip(self._potential[edge], more, strict=True)]
            else:
                here = [left - m for left, m in zip(self._left[edge], more, strict=True)]
                source, reader = self._ends[edge]
                alone, possible = self._alone[source], self._runs_on[reader]
                self._potential[edge] = [min([alone[a][b] - here[b] for b in possible]) for a in self._backends]
            self._left[edge] = self._least_left(edge)

    def _make_entries(self, moves: Moves) -> list[_Entry]:
        entries = []
        runs_on: list[set[int]] = [set() for _ in moves.starting]
        for first, starting in enumerate(moves.starting):
            for move in starting:
                members = tuple([first + offset for offset in offsets(move.nodes)])
                inside = frozenset(members)
                sources: dict[int, list[int]] = {}
                leaving = []
                for q in members:
                    runs_on[q].add(move.backend)
                    for edge in self._into[q]:
                        if self._ends[edge][0] not in inside:
                            sources.setdefault(self._ends[edge][0], []).append(edge)
                    leaving += [edge for edge in self._from[q] if self._ends[edge][1] not in inside]
                read = tuple([_Source(node, tuple(edges)) for node, edges in sources.items()])
                entries.append(_Entry(move, move.weight, members, read, None, tuple(leaving), ()))
        self._runs_on = [sorted(backends) for backends in runs_on]
        shares = node_shares(moves)
        wide: list[list[_Entry]] = [[] for _ in moves.starting]
        for number, entry in enumerate(entries):
            exits = {self._ends[edge][0] for edge in entry.leaving}
            if len(exits) < 2:
                continue
            credit = (len(entry.leaving) - 1) * max(self._transitions[entry.move.backend])
            if credit <= entry.weight - sum([shares[q] for q in entry.members]):
                entries[number] = entry._replace(weight=entry.weight - credit)
                continue
            for node in exits:
                wide[node].append(entry)
        return [self._with_shared_sources(entry, wide) for entry in entries]

    def _with_shared_sources(self, entry: _Entry, wide: Sequence[Sequence[_Entry]]) -> _Entry:
        """The entry with the candidates that several of its sources may be in, which `wide` lists by node."""
        found: dict[int, tuple[_Entry, list[int]]] = {}
        if sum([bool(wide[source.node]) for source in entry.sources]) > 1:
            for i, source in enumerate(entry.sources):
                for other in wide[source.node]:
                    found.setdefault(other.move.candidate, (other, []))[1].append(i)
        inside = frozenset(entry.members)
        together = dict.fromkeys(
            (other.move.backend, tuple(indices))
            for other, indices in found.values()
            if len(indices) > 1
            and self._transitions[other.move.backend][entry.move.backend]
            and inside.isdisjoint(other.members)
        )
        simple = not together and all([len(source.edges) == 1 for source in entry.sources])
        entering = tuple([source.edges[0] for source in entry.sources]) if simple else None
        return entry._replace(entering=entering, together=tuple(together))


def _alone(
    transitions: Sequence[Sequence[int]], carried: Sequence[Sequence[Sequence[int]]], size: int
) -> list[Sequence[Sequence[int]]]:
    """Per node, producer and consumer: a latency and the node's bytes."""
    if not carried:
        return [transitions] * size
    backends = range(len(transitions))
    return [[[transitions[a][b] + carried[a][b][u] for b in backends] for a in backends] for u in range(size)]
