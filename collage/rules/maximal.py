"""Maximal regions: what `partition_for_<backend>` would take, so that the single-backend placement is among the
candidates.

The units that a backend supports are grouped so that the quotient stays acyclic. Give each unit a *level*: the number
of times that a path to it passes from a supported unit into an unsupported one. Edges never go down a level, so
connected supported units of one level form regions that are convex, and mutually acyclic, all of them together.
Counting from the results instead of from the inputs gives another such placement (it takes late what the first takes
early). Both are linear in the size of the graph.
"""

from __future__ import annotations

from collage.rules.units import Units


def maximal_regions(units: Units, from_results: bool = False) -> list[list[int]]:
    """Disjoint sets of supported units, each connected and convex, the quotient by all of them acyclic; all supported
    units.
    """
    levels = _levels(units, from_results)
    region_of: list[int] = list(range(len(units)))

    def root(unit: int) -> int:
        while region_of[unit] != unit:
            region_of[unit] = region_of[region_of[unit]]
            unit = region_of[unit]
        return unit

    for unit, readers in enumerate(units.outputs):
        for reader in readers:
            if units.supported[unit] and units.supported[reader] and levels[unit] == levels[reader]:
                first, second = sorted((root(unit), root(reader)))
                region_of[second] = first
    regions: dict[int, list[int]] = {}
    for unit in range(len(units)):
        if units.supported[unit]:
            regions.setdefault(root(unit), []).append(unit)
    return list(regions.values())


def _levels(units: Units, from_results: bool) -> list[int]:
    levels = [0] * len(units)
    neighbours = units.outputs if from_results else units.inputs
    order = reversed(range(len(units))) if from_results else range(len(units))
    for unit in order:
        for other in neighbours[unit]:
            step = units.supported[other] and not units.supported[unit]
            levels[unit] = max(levels[unit], levels[other] + step)
    return levels
