"""Lower bounds: a share of the cost for every node, such that no candidate costs less than the shares of its nodes.

Such shares are a feasible dual solution of the set-partitioning problem, so their sum is a lower bound on every cover.
The cost of a candidate beyond its nodes' shares is its *reduced* cost. It is never negative, and choosing the candidate
moves a cover away from the bound by that much. Searching by reduced costs is A* with this bound as heuristic.
Acyclicity and transitions only make covers dearer, so leaving them out keeps the bound valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from searchers.cover_search.moves import Moves


def node_shares(moves: Moves) -> list[int]:
    """The better of two assignments of shares: from the first node to the last, and from the last to the first.

    Each gives every node as much as the candidates that end there still allow. On a chain the first is Dijkstra's
    distance itself, so the bound is exact there; shares may be negative where a large candidate is cheaper than its
    parts.
    """
    entries = [
        (tuple([first + offset for offset in offsets(move.nodes)]), move.weight)
        for first, starting in enumerate(moves.starting)
        for move in starting
    ]
    size = len(moves.starting)
    forwards, backwards = _sweep(entries, size, forwards=True), _sweep(entries, size, forwards=False)
    return max(forwards, backwards, key=sum)


def _sweep(entries: Sequence[tuple[tuple[int, ...], int]], size: int, forwards: bool) -> list[int]:
    ending: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(size)]
    for members, weight in entries:
        ending[members[-1] if forwards else members[0]].append((members, weight))
    shares = [0] * size
    for p in range(size) if forwards else range(size - 1, -1, -1):
        # Its own share is still zero, so summing over all members gives what the others have taken.
        allowed = [weight - sum([shares[q] for q in members]) for members, weight in ending[p]]
        shares[p] = min(allowed, default=0)
    return shares


@lru_cache(maxsize=1 << 14)
def offsets(nodes: int) -> tuple[int, ...]:
    """The members of a bit set, ascending. Networks repeat themselves, so most sets have been seen before."""
    return tuple(positions(nodes, 0))


def positions(nodes: int, first: int) -> Iterator[int]:
    """The members of a bit set relative to `first`, ascending."""
    while nodes:
        low = nodes & -nodes
        yield first + low.bit_length() - 1
        nodes ^= low
