"""CoverFinder: the legal cover of least weight, for many different weights of one set of candidates.

The layout of the search (`searchers.cover_search.moves`) is made once. Each call then changes weights only, and runs
one narrow pass of `searchers.cover_search.layered_search`. A narrow pass may miss a better cover, but never gives an
illegal one. A pass that meets dead ends only is repeated with more states until there is a cover.

Weights come from a genome (`searchers.evolution.genome`). Preferences come before costs: a candidate weighs, before its
cost, the number of its nodes that prefer another backend, then the links that it breaks. Both are sums over the
candidates of a cover: a link to be joined counts one in each of two partitions that hold one end of it, and a link to
be cut counts two in a partition that holds both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from collage.errors import NoCoverError
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import SearchProblem
from searchers.cover_search.layered_search import Budget, LayeredSearch
from searchers.cover_search.moves import Moves, make_moves, tables
from searchers.cover_search.objective import Objective
from searchers.evolution.genome import ANY, Genome, Group, Link

#: Indices into `Objective.candidates`, ascending: equal covers are equal.
Cover = tuple[int, ...]

#: Partial covers kept per layer. On NASNet-like cells of 440 operators 16 take twice as long, for nothing.
_WIDTH = 4


class CoverFinder:
    """Finds and values covers of one problem.

    Attributes
    ----------
    shift
        A number shifted left by this outweighs the cost of any cover.
    """

    def __init__(self, problem: SearchProblem, objective: Objective, groups: Sequence[Group]) -> None:
        self._problem = problem
        self._objective = objective
        self._groups = groups
        self._moves = _all_moves(problem, objective)
        self._inside = [c.sub_graph.inside.bits for c in objective.candidates]
        self._parted, self._joined = self._links()
        nodes = len(problem.nodes) + 1
        highest, between = max(objective.weights, default=0), max(objective.transitions.values(), default=0)
        between += max(map(max, objective.carried.values()), default=0)
        self.shift = (nodes * highest + nodes * nodes * between + 1).bit_length()
        self._of_genome: dict[Genome, Cover] = {}
        self._values: dict[Cover, int] = {}

    def cover_of(self, chosen: Sequence[CandidatePartition]) -> Cover:
        """The cover that consists of these candidates."""
        number = {candidate: i for i, candidate in enumerate(self._objective.candidates)}
        return tuple(sorted(number[candidate] for candidate in chosen))

    def candidates(self, cover: Cover) -> list[CandidatePartition]:
        return [self._objective.candidates[i] for i in cover]

    def value(self, cover: Cover) -> int:
        """What the cover is worth by the objective: unknown costs, additive cost, ties; less is better."""
        if cover not in self._values:
            chosen = self.candidates(cover)
            self._values[cover] = sum(self._objective.weights[i] for i in cover) + self._objective.paid(chosen)
        return self._values[cover]

    def of_genome(self, genome: Genome) -> Cover:
        """The cover that meets most preferences, at least cost. Memoised."""
        if genome not in self._of_genome:
            self._of_genome[genome] = self.best(self._penalties(genome))
        return self._of_genome[genome]

    def best(self, penalties: Sequence[int]) -> Cover:
        """The cover of least penalty, among those of least cost.

        Parameters
        ----------
        penalties
            Per candidate; each outweighs every cost.

        Raises
        ------
        NoCoverError
            There is no cover at all, whatever the weights.
        """
        weights = [w + (p << self.shift) for w, p in zip(self._objective.weights, penalties, strict=True)]
        starting = tuple(
            tuple(move._replace(weight=weights[move.candidate]) for move in moves) for moves in self._moves.starting
        )
        moves = replace(self._moves, starting=starting)
        outcome = LayeredSearch(moves, Budget(deadline=math.inf, states=1 << 62, width=_WIDTH)).run()
        if outcome.value is None:
            raise NoCoverError("no choice of candidates covers the network: search with `dijkstra`, which says why")
        return tuple(sorted(outcome.chosen))

    def _penalties(self, genome: Genome) -> list[int]:
        preferred: dict[str, int] = {}
        joined = cut = 0
        for position, (gene, group) in enumerate(zip(genome, self._groups, strict=True)):
            if gene.backend != ANY:
                preferred[gene.backend] = preferred.get(gene.backend, 0) | group.nodes
            joined |= (gene.link is Link.JOINED) << position
            cut |= (gene.link is Link.CUT) << position
        everywhere = 0
        for nodes in preferred.values():
            everywhere |= nodes
        elsewhere = {name: everywhere & ~preferred.get(name, 0) for name in self._moves.backends}
        elsewhere[HOST] = 0
        node = 2 * len(self._groups) + 1  # one node outweighs all links
        return [
            (inside & elsewhere[candidate.backend]).bit_count() * node
            + (parted & joined).bit_count()
            + 2 * (whole & cut).bit_count()
            for candidate, inside, parted, whole in zip(
                self._objective.candidates, self._inside, self._parted, self._joined, strict=True
            )
        ]

    def _links(self) -> tuple[list[int], list[int]]:
        """Per candidate, the links of which one end is inside, and those of which both are; bit i is group i."""
        parted, joined = [], []
        for inside in self._inside:
            one = both = 0
            for position, group in enumerate(self._groups):
                if group.source is not None:
                    ends = (inside >> group.source[0] & 1) + (inside >> group.source[1] & 1)
                    one |= (ends == 1) << position
                    both |= (ends == 2) << position
            parted.append(one)
            joined.append(both)
        return parted, joined


def _all_moves(problem: SearchProblem, objective: Objective) -> Moves:
    """The moves of all candidates.

    Where transitions cost nothing, `make_moves` keeps one backend per set of nodes, which is right for one set of
    weights only. So it is given transitions that cost something, and those of the moves are set afterwards.
    """
    names = sorted({c.backend for c in objective.candidates})
    costly = {(a, b): 1 for a in names for b in names if a != b}
    moves = make_moves(problem.graph, replace(objective, transitions=costly))
    transitions, carried = tables(objective, moves.backends, moves.layout.order)
    return replace(moves, transitions=transitions, carried=carried)
