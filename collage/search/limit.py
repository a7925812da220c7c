"""Limit: a bound on a second sum over a cover's candidates, beside cost; and the result of such a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collage.graph.candidates import CandidatePartition
from collage.search.partitioning import Partitioning


@dataclass(frozen=True)
class Limit:
    """The resource of a constrained shortest path.

    Attributes
    ----------
    used
        What a candidate uses: never negative, infinite where it is not allowed.
    most
        What a cover may use in all.
    price
        Seconds per unit, by which searches may order partial covers. None is wrong; best is the Lagrangian multiplier.
    below
        Only covers faster than this, in seconds, are wanted.
    """

    used: Callable[[CandidatePartition], float]
    most: float
    price: float = 0.0
    below: float = float("inf")


@dataclass(frozen=True)
class WithinLimit:
    """What a search within a limit found.

    Attributes
    ----------
    partitioning
        The fastest cover found within the limit; None when none was found that is wanted.
    lower_bound
        Seconds: no cover within the limit is faster. Never above `Limit.below`; infinite when it is proven that there
        is no cover at all.
    """

    partitioning: Partitioning | None
    lower_bound: float
