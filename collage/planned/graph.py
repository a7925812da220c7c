"""The network of a plan as data, and what else could have run its nodes: what the report draws and explains.

A file has a row for each node. Equal attributes are one entry, and equal partitions share the candidates of the first
of them: networks repeat their blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

#: How the cost of a candidate is known.
MEASURED, INSIDE, PREDICTED = "measured", "inside the whole", "predicted"
FAILED, UNKNOWN, NOT_ASKED = "failed", "unknown", "not asked"


class PlannedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node of the dataflow graph; its number is its place.

    Attributes
    ----------
    op
        Operator; "input" or "constant" of what is given.
    inputs
        Numbers of the nodes that it reads.
    type
        Of its value, as `float32[1,64,56,56]`; "" where that is not known.
    name
        As the network has it, "" without one.
    attributes
        Place of its attributes among those of the graph; -1 where it has none.
    """

    op: str
    inputs: tuple[int, ...] = ()
    type: str = ""
    name: str = ""
    attributes: int = -1


class PlannedGraph(msgspec.Struct, frozen=True):
    """The dataflow graph.

    Attributes
    ----------
    nodes
        All of them, in topological order.
    attributes
        Distinct ones, by name.
    """

    nodes: tuple[PlannedNode, ...]
    attributes: tuple[Mapping[str, Any], ...] = ()


class PlannedCandidate(msgspec.Struct, frozen=True, array_like=True):
    """A candidate partition beside one of the plan.

    Attributes
    ----------
    partition
        Number of the partition of the plan with which it shares nodes.
    backend
        Its name.
    nodes
        Those inside, as `3-5,8`.
    how
        `MEASURED`, `INSIDE`, `PREDICTED`, `FAILED`, `UNKNOWN` or `NOT_ASKED`.
    seconds, spread
        Its cost, as the decision had it, and the half-width of its interval; None where there is none.
    low, high
        Seconds between which the cost was expected before it was asked for; None where nothing was.
    reason
        Why it failed.
    """

    partition: int
    backend: str
    nodes: str
    how: str
    seconds: float | None = None
    spread: float = 0.0
    low: float | None = None
    high: float | None = None
    reason: str = ""


class PlannedCandidates(msgspec.Struct, frozen=True):
    """What the partitions of a plan were chosen from.

    Attributes
    ----------
    found, asked
        How many candidates the rules found, and of how many the cost was asked for.
    alike
        For each partition of the plan, the number of the first one like it: its candidates are listed.
    more
        For each partition of the plan, how many candidates are not listed.
    listed
        For each first partition: those on the same nodes, then by cost per node.
    """

    found: int
    asked: int
    alike: tuple[int, ...]
    more: tuple[int, ...]
    listed: tuple[PlannedCandidate, ...]


def ranges_text(nodes: Iterable[int]) -> str:
    """`3-5,8` of 3, 4, 5, 8."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1][-1] = node
        else:
            runs.append([node, node])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def nodes_of(text: str) -> tuple[int, ...]:
    """What `ranges_text` was given, in ascending order.

    Raises
    ------
    ValueError
        The text is none of its.
    """
    ends = ([int(end) for end in part.split("-")] for part in text.split(",") if part)
    return tuple(chain.from_iterable(range(run[0], run[-1] + 1) for run in ends))
