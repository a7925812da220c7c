"""Levels of detail: a network's operators as a tree that a page opens step by step.

Partitions are groups of operators. Where a block of partitions, or of operators inside of one, is repeated end to end,
its repetitions become one group. What is still long is cut into pieces. Every group is an interval of an order in which
the network can run, so edges between groups have no cycles, whichever of them are open.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from collage.planned.data import PlanData, PlannedPartition
from collage.planned.graph import PlannedGraph

#: How many members a group has at most, and how long a repeated block may be.
_MOST, _LONGEST_BLOCK = 60, 256
#: How many members a repetition has to fold to be worth a group.
_WORTH = 4

#: A node's number; or a group, JSON-ready: its kind ("partition", "repeat", "block" or "piece"), its members, and of a
#: partition its number.
Member = int | dict[str, Any]


def tree(plan: PlanData, graph: PlannedGraph) -> list[Member]:
    """The members of the outermost level, in execution order; of a network that TVM builds alone, operators."""
    if not plan.partitions:
        given = ("input", "constant")
        return _operators(graph, [i for i, node in enumerate(graph.nodes) if node.op not in given])
    groups: list[Member] = [
        {"kind": "partition", "partition": number, "members": _operators(graph, sorted(partition.nodes))}
        for number, partition in enumerate(plan.partitions)
    ]
    return nested(groups, [_kind(partition) for partition in plan.partitions])


def _kind(partition: PlannedPartition) -> Hashable:
    return partition.backend, partition.operators, partition.int8


def _operators(graph: PlannedGraph, nodes: Sequence[int]) -> list[Member]:
    kinds = [(graph.nodes[i].op, graph.nodes[i].type, graph.nodes[i].attributes) for i in nodes]
    return nested(list(nodes), kinds)


def nested(members: Sequence[Member], kinds: Sequence[Hashable]) -> list[Member]:
    """The members, with repeated blocks of equal kinds and long lists as groups."""
    numbers: dict[Hashable, int] = {}
    return _cut(_folded(list(members), np.array([numbers.setdefault(kind, len(numbers)) for kind in kinds])))


def _folded(members: list[Member], kinds: np.ndarray) -> list[Member]:
    result: list[Member] = []
    done = 0
    for start, period, times in _repetitions(kinds):
        end = start + period * times
        blocks: list[Member] = members[start:end]
        if period > 1:
            parts = [slice(first, first + period) for first in range(start, end, period)]
            blocks = [{"kind": "block", "members": _cut(_folded(members[part], kinds[part]))} for part in parts]
        result += members[done:start]
        result.append({"kind": "repeat", "period": period, "times": times, "members": _cut(blocks)})
        done = end
    return result + members[done:]


def _repetitions(kinds: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, period, times) of repetitions that do not overlap, in order: those that fold the most members."""
    found: list[tuple[int, int, int]] = []
    for period in range(1, min(len(kinds) // 2, _LONGEST_BLOCK) + 1):
        same = np.concatenate(([False], kinds[:-period] == kinds[period:], [False]))
        changes = np.flatnonzero(same[1:] != same[:-1])
        starts, times = changes[::2], (changes[1::2] - changes[::2]) // period + 1
        worth = (times > 1) & (times * period >= _WORTH)
        found += [(int(start), period, int(number)) for start, number in zip(starts[worth], times[worth], strict=True)]
    taken = np.zeros(len(kinds), dtype=bool)
    chosen = []
    for start, period, number in sorted(found, key=lambda f: (-f[1] * f[2], f[1], f[0])):
        inside = slice(start, start + period * number)
        if not taken[inside].any():
            taken[inside] = True
            chosen.append((start, period, number))
    return sorted(chosen)


def _cut(members: list[Member]) -> list[Member]:
    """At most `_MOST` members: pieces of equal length where there are more."""
    if len(members) <= _MOST:
        return members
    size = -(-len(members) // min(_MOST, -(-len(members) // _MOST)))
    pieces: list[Member] = [
        {"kind": "piece", "members": _cut(members[first : first + size])} for first in range(0, len(members), size)
    ]
    return pieces
