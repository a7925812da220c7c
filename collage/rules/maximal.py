"""Maximal regions: what `partition_for_<backend>` would take, so that the single-backend placement is among the
candidates.

The units that a backend supports are grouped so that the quotient stays acyclic. Give each unit a *level*: the number
of times that a path to it passes from a supported unit into an unsupported one. Edges never go down a level, so
connected supported units of one level form regions that are convex, and mutually acyclic, all of them together.
Counting from the results instead of from the inputs gives another such placement (it takes late what the first takes
early). Both are linear in the size of the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from collage.graph.quotient import DisjointSets
from collage.rules.units import Units


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
