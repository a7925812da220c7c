"""Of placements that costs cannot tell apart, the simplest: what ships when nothing is run end to end.

A search adds up the costs of hundreds of candidates and takes the least sum, also where it is less by a thousandth.
Sums of costs are not that exact, those of predicted costs least of all: of thousands of candidates it finds those that
were told too low. A placement on one backend whose sum is as good as a tie has fewer places to be wrong in.
"""

from __future__ import annotations

from collections.abc import Mapping

from collage.confirm import SEARCHED
from collage.measure.statistics import TIE
from collage.search import Partitioning, SearchProblem


def simplest(
    problem: SearchProblem, found: Partitioning, alone: Mapping[str, Partitioning]
) -> tuple[str, Partitioning]:
    """The placement of fewest partitions among those that cost no more than a tie above the searched one, and its name.
    Of equal numbers, the searched one, or the cheapest.

    Parameters
    ----------
    found: what the search answered.
    alone: name -> placement on one backend, as far as it goes; costs are asked of the problem.
    """
    best, most = (SEARCHED, found), found.cost.seconds * (1.0 + TIE)
    for name, cover in alone.items():
        rival = problem.partitioning(cover.candidates)
        fewer = len(rival.candidates) - len(best[1].candidates)
        cheaper = best[0] != SEARCHED and fewer == 0 and rival.cost.seconds < best[1].cost.seconds
        if rival.cost.is_finite and rival.cost.seconds <= most and (fewer < 0 or cheaper):
            best = name, rival
    return best


def tie_notes(found: Partitioning, choice: str) -> list[str]:
    """Why it is not the searched placement that ships."""
    if choice == SEARCHED:
        return []
    return [
        f"{choice} is told to take no more than {TIE:.0%} longer than the searched placement, of "
        f"{len(found.candidates)} partitions, which counts as a tie: the simpler one ships"
    ]
