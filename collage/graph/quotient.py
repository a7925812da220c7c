"""Quotients: a graph with disjoint groups of its nodes in place of the nodes; its order and its reachability.

A cover can run exactly when its quotient is acyclic. Convex groups are not enough: of two pairs of nodes, each may have
an edge into the other. The units that regions are made of are a quotient too. Groups are numbered, and sets of groups
are bit sets: bit i is group i.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property


class DisjointSets:
    """Sets of numbers that are joined step by step (union-find); each number begins alone."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def find(self, member: int) -> int:
        """Return the least member of the set that holds `member`."""
        parent = self._parent
        while (above := parent.get(member, member)) != member:
            parent[member] = parent.get(above, above)  # halves the path
            member = above
        return member

    def join(self, one: int, other: int) -> None:
        """Make the sets of two members one."""
        first, second = sorted((self.find(one), self.find(other)))
        self._parent[second] = first

    def groups(self, members: Iterable[int]) -> list[list[int]]:
        """Sort members into their sets: sets by first appearance, members in the order given."""
        groups: dict[int, list[int]] = {}
        for member in members:
            groups.setdefault(self.find(member), []).append(member)
        return list(groups.values())


def reachable(neighbours: Sequence[Iterable[int]], order: Iterable[int]) -> tuple[int, ...]:
    """Return, per node, the bit set of all nodes that paths along `neighbours` lead to, itself not included.

    Parameters
    ----------
    neighbours
        Per node, those that one step leads to.
    order
        The nodes, each after its neighbours.
    """
    sets = [0] * len(neighbours)
    for node in order:
        bits = 0
        for other in neighbours[node]:
            bits |= sets[other] | 1 << other
        sets[node] = bits
    return tuple(sets)


class Quotient:
    """The graph of disjoint groups of nodes.

    Parameters
    ----------
    members
        Per group, its nodes.
    reads
        Per group, the nodes that it reads; its own, and those in no group, do not count.

    Attributes
    ----------
    inputs, outputs
        Per group, the groups that it reads, and those that read it, ascending.
    """

    def __init__(self, members: Sequence[Iterable[int]], reads: Sequence[Iterable[int]]) -> None:
        owner = {node: group for group, nodes in enumerate(members) for node in nodes}
        self._first = [min(nodes) for nodes in members]
        self.inputs = tuple(
            tuple(sorted({owner[node] for node in nodes if node in owner} - {group}))
            for group, nodes in enumerate(reads)
        )
        outputs: list[list[int]] = [[] for _ in members]
        for producer, consumer in self.edges():
            outputs[producer].append(consumer)
        self.outputs = tuple(tuple(consumers) for consumers in outputs)

    def edges(self) -> Iterator[tuple[int, int]]:
        """Yield each (producer, consumer) once, by consumer."""
        yield from ((producer, consumer) for consumer, sources in enumerate(self.inputs) for producer in sources)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The groups in topological order, lowest first node first where there is a choice.

        Groups on a cycle, and those that depend on one, are left out.
        """
        waiting = [len(sources) for sources in self.inputs]
        ready = [(self._first[group], group) for group, count in enumerate(waiting) if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, group = heapq.heappop(ready)
            order.append(group)
            for consumer in self.outputs[group]:
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    heapq.heappush(ready, (self._first[consumer], consumer))
        return tuple(order)

    @cached_property
    def upstream(self) -> tuple[int, ...]:
        """Per group, the bit set of all that flow into it."""
        return reachable(self.inputs, self.order)

    @cached_property
    def downstream(self) -> tuple[int, ...]:
        """Per group, the bit set of all that it flows into."""
        return reachable(self.outputs, reversed(self.order))
