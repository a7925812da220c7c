"""The post-dominator tree of a region of units, and the intervals and cells that it shows.

p *post-dominates* u when all that u computes flows through p. The sub-tree below p is all that only p needs: a cell,
a branch, a residual block with all before it. A path down the tree is a sequence of articulation points.

A region can have many results (the keys and values of each layer of a decoder). Post-dominance is taken towards the
*main* one, at the end of the longest path; what leads to other results only is hung where it branches off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from collage.graph.index_set import IndexSet
from collage.graph.quotient import DisjointSets
from collage.graph.sub_graph import SubGraph
from collage.rules.units import Units

#: Stands for everything after the region.
ROOT = -1


class PostDominatorTree:
    """`parent[u]` is the first unit through which all paths from u to the main result go."""

    def __init__(self, units: Units, region: Sequence[int]) -> None:
        self.units = units
        self.region = sorted(region)
        inside = frozenset(region)
        self.readers = {unit: [r for r in units.outputs[unit] if r in inside] for unit in self.region}
        self.parent: dict[int, int] = {}
        self.depth = {ROOT: 0}
        main = self._main_units()
        for unit in reversed(self.region):
            if unit in main:
                readers = [reader for reader in self.readers[unit] if reader in main]
                self._place(unit, self._meet(readers) if readers else ROOT)
        branches_off = self._last_ancestors(main)
        for unit in reversed(self.region):
            if unit not in main:
                readers, ancestor = self.readers[unit], branches_off[unit]
                aside = ROOT if ancestor is None else self.parent[ancestor]
                self._place(unit, self._meet(readers) if readers else aside)
        self.children: dict[int, list[int]] = {unit: [] for unit in (ROOT, *self.region)}
        for unit in self.region:
            self.children[self.parent[unit]].append(unit)
        self.size: dict[int, int] = {}
        for unit in sorted(self.region, key=lambda u: -self.depth[u]):
            self.size[unit] = 1 + sum(self.size[child] for child in self.children[unit])

    def _place(self, unit: int, parent: int) -> None:
        self.parent[unit] = parent
        self.depth[unit] = self.depth[parent] + 1

    def _main_units(self) -> set[int]:
        """The units that lead to the main result: the unit without readers at the end of the longest path."""
        length: dict[int, int] = {}
        for unit in self.region:
            length[unit] = 1 + max((length[i] for i in self.units.inputs[unit] if i in length), default=0)
        ends = [unit for unit in self.region if not self.readers[unit]]
        main = {max(ends, key=lambda unit: (length[unit], unit))}
        for unit in reversed(self.region):
            if not main.isdisjoint(self.readers[unit]):
                main.add(unit)
        return main

    def _last_ancestors(self, main: set[int]) -> dict[int, int | None]:
        """Per unit that is not main, the last main unit that flows into it."""
        last: dict[int, int | None] = {}
        for unit in self.region:
            if unit not in main:
                sources = [i for i in self.units.inputs[unit] if i in main]
                sources += [a for i in self.units.inputs[unit] if (a := last.get(i)) is not None]
                last[unit] = max(sources, default=None)
        return last

    def _meet(self, readers: Sequence[int]) -> int:
        """The lowest common ancestor."""
        meet = readers[0]
        for other in readers[1:]:
            while meet != other:
                if self.depth[meet] < self.depth[other]:
                    meet, other = other, meet
                meet = self.parent[meet]
        return meet

    @cached_property
    def heavy(self) -> dict[int, int]:
        """Per unit with children, the one with the largest sub-tree, the later of two equals."""
        best = {p: max(c, key=lambda unit: (self.size[unit], unit)) for p, c in self.children.items() if c}
        best.pop(ROOT, None)
        return best

    @cached_property
    def trunk(self) -> dict[int, int]:
        """Per unit with children, the one with which the path goes on: the heavy child, or a sibling that it begins
        from.

        In the first block of a network the branch outweighs all that comes before the block; the block is
        nevertheless what lies after the node from which the branch forks.
        """
        first: dict[int, int] = {}
        for unit in sorted(self.region, key=lambda u: -self.depth[u]):
            first[unit] = min([unit, *(first[child] for child in self.children[unit])])
        chosen = dict(self.heavy)
        for parent, heavy in self.heavy.items():
            forks = [f for f in self.children[parent] if f != heavy and first[heavy] in self.readers[f]]
            if forks:
                chosen[parent] = max(forks)
        return chosen

    def paths(self) -> Iterator[list[int]]:
        """A decomposition of the tree into paths along the trunks, each from a leaf up; every unit is in one."""
        for top in self.region:
            parent = self.parent[top]
            if parent != ROOT and self.trunk[parent] == top:
                continue
            path = [top]
            while path[-1] in self.trunk:
                path.append(self.trunk[path[-1]])
            yield path[::-1]

    def below(self, top: int) -> list[int]:
        """The sub-tree of `top`, itself included."""
        found = [top]
        for unit in found:
            found.extend(self.children[unit])
        return found

    def blocks(self, path: Sequence[int]) -> list[list[int]]:
        """Per unit of a path, the interval that ends with it: itself and its side branches, without the path below."""
        found = []
        for unit in path:
            block = [unit]
            for child in self.children[unit]:
                if child != self.trunk[unit]:
                    block.extend(self.below(child))
            found.append(block)
        return found

    def single_exit(
        self, path: Sequence[int], blocks: Sequence[list[int]], start: int, stop: int
    ) -> Iterator[IndexSet]:
        """The run of blocks, if it is convex; otherwise the part of it that depends on what comes before.

        A side branch that the whole network needs (an attention mask) hangs at the last of its readers, and would
        make that run re-enter itself.
        """
        run = [unit for block in blocks[start:stop] for unit in block]
        whole = SubGraph(self.units.graph, IndexSet(self.units.nodes(run)))
        if whole.is_convex:
            yield whole.inside
        elif start > 0:
            yield IndexSet(self.units.nodes(self._after(path[start - 1], frozenset(run))))

    def _after(self, unit: int, within: frozenset[int]) -> list[int]:
        reached = {unit}
        for other in sorted(within):
            if not reached.isdisjoint(self.units.inputs[other]):
                reached.add(other)
        reached.discard(unit)
        return sorted(reached)

    def sibling_sequences(self) -> Iterator[list[int]]:
        """Siblings in topological order, where none outweighs the rest: a sequence of cells, not a trunk and its
        twigs.
        """
        for parent, siblings in self.children.items():
            total = sum(self.size[unit] for unit in siblings)
            if len(siblings) > 1 and parent != ROOT and 2 * self.size[self.heavy[parent]] > total:
                continue
            if len(siblings) > 1:
                yield siblings

    def joined(self, tops: Sequence[int]) -> Iterator[IndexSet]:
        """The union of sub-trees, if it is convex and connected."""
        run = frozenset(unit for top in tops for unit in self.below(top))
        region = SubGraph(self.units.graph, IndexSet(self.units.nodes(run)))
        if region.is_convex and self._is_connected(run):
            yield region.inside

    def _is_connected(self, run: frozenset[int]) -> bool:
        parts = DisjointSets()
        for unit in run:
            for reader in run.intersection(self.units.outputs[unit]):
                parts.join(unit, reader)
        return len(parts.groups(run)) == 1
