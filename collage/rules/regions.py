"""Regions for graph-style backends: few, convex, and where engines gain from more context.

A graph backend can take any convex set of supported operators, of which there are exponentially many.

*Maximal regions* are what `partition_for_<backend>` would take, so that the single-backend placement is among the
candidates. The units that a backend supports are grouped so that the quotient stays acyclic. Each unit has a *level*:
the number of times that a path to it passes from a supported unit into an unsupported one. Edges never go down a level,
so connected supported units of one level form regions that are convex, and mutually acyclic, all of them together.
Counting from the results instead of from the inputs gives another such placement (it takes late what the first takes
early). Both are linear in the size of the graph.

Inside each maximal region, the post-dominator tree shows the structure of the network. A path down that tree is a
sequence of articulation points, and what lies between two of them is an interval: a residual block, an attention layer,
a branch of a cell. Regions are intervals, runs of consecutive intervals on each path of the tree, and runs of sibling
sub-trees (cells of a network where each cell feeds the next two, so that none post-dominates another).

Runs have every length up to a limit, and beyond it only aligned powers of two: the count stays linear in the size of
the network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.quotient import DisjointSets
from collage.graph.sub_graph import SubGraph
from collage.rules.base import PartitionRule, PartitionSpec, distinct
from collage.rules.post_dominators import ROOT, PostDominatorTree
from collage.rules.units import Supports, Units, anchor_chains, atoms_of, units_of


@dataclass(frozen=True)
class RegionPartitionRule(PartitionRule):
    """Convex regions of supported operators.

    Attributes
    ----------
    supports
        Whether the backend takes a call; tuples and projections go with the calls that they belong to.
    max_chain
        Operators in a library pattern: an anchor and what follows it.
    max_run
        All runs of so many consecutive intervals on the main path of a region.
    nested_run
        The same on the paths inside it (the branches of a cell).
    """

    supports: Supports
    max_chain: int = 4
    max_run: int = 3
    nested_run: int = 2

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return distinct(CandidatePartition(SubGraph(graph, inside), spec.backend) for inside in self.regions(graph))

    def regions(self, graph: DataflowGraph) -> Iterator[IndexSet]:
        """The node sets, with repetitions: operators, library patterns, intervals and runs, maximal regions."""
        supports = cache(self.supports)  # asked four times of every node; an exporter tries what it would do
        yield from (IndexSet(nodes) for nodes, takes in atoms_of(graph, supports) if takes)
        yield from (IndexSet(chain) for chain in anchor_chains(graph, supports, self.max_chain))
        units = units_of(graph, supports, self.max_chain)
        for region in maximal_regions(units):
            yield IndexSet(units.nodes(region))
            yield from self._inside(units, region)
        for region in maximal_regions(units, from_results=True):
            yield IndexSet(units.nodes(region))

    def _inside(self, units: Units, region: Sequence[int]) -> Iterator[IndexSet]:
        tree = PostDominatorTree(units, region)
        for path in tree.paths():
            blocks = tree.blocks(path)
            limit = self.max_run if tree.parent[path[-1]] == ROOT else self.nested_run
            for start, stop in runs(len(blocks), limit):
                yield from tree.single_exit(path, blocks, start, stop)
        for siblings in tree.sibling_sequences():
            for start, stop in runs(len(siblings), self.max_run):
                if stop - start > 1:
                    yield from tree.joined(siblings[start:stop])


def runs(count: int, limit: int) -> Iterator[tuple[int, int]]:
    """Half-open runs in `range(count)`: all of length up to `limit`, aligned ones of longer powers of two, and the
    whole.
    """
    for length in range(1, min(limit, count) + 1):
        yield from ((start, start + length) for start in range(count - length + 1))
    length = 1 << limit.bit_length()
    while length < count:
        yield from ((start, min(start + length, count)) for start in range(0, count, length))
        length *= 2
    if count > limit:
        yield 0, count


def maximal_regions(units: Units, from_results: bool = False) -> list[list[int]]:
    """Disjoint sets of supported units, each connected and convex, the quotient by all of them acyclic; all supported
    units.
    """
    taken = {unit for unit in range(len(units)) if units.supported[unit]}
    level = levels_of(units.outputs if from_results else units.inputs, taken, from_results)
    regions = DisjointSets()
    for unit, readers in enumerate(units.outputs):
        for reader in readers:
            if unit in taken and reader in taken and level[unit] == level[reader]:
                regions.join(unit, reader)
    return regions.groups(sorted(taken))


def levels_of(neighbours: Sequence[Iterable[int]], taken: Collection[int], from_results: bool = False) -> list[int]:
    """Return, per node, how often a path to it (or from it) leaves what is taken, at most.

    Parameters
    ----------
    neighbours
        Per node, in topological order, those that it reads; those that read it when counting from the results.
    taken
        The nodes that a backend takes.
    """
    levels = [0] * len(neighbours)
    for node in reversed(range(len(levels))) if from_results else range(len(levels)):
        levels[node] = max((levels[n] + (n in taken and node not in taken) for n in neighbours[node]), default=0)
    return levels
