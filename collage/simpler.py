"""Of placements that costs cannot tell apart, the simplest: what ships when nothing is run end to end.

A search adds up the costs of hundreds of candidates and takes the least sum, also where it is less by a thousandth.
Sums of costs are not that exact, those of predicted costs least of all: of thousands of candidates it finds those that
were told too low. A placement on one backend whose sum is as good as a tie has fewer places to be wrong in. Which of
two backends alone is better by half a percent is not known either: the declared preference decides, as in any tie.
"""

from __future__ import annotations

from collections.abc import Mapping

from collage.candidates import HOST
from collage.confirm import SEARCHED
from collage.measure.statistics import TIE
from collage.search import Partitioning, SearchProblem


def simplest(
    problem: SearchProblem, found: Partitioning, alone: Mapping[str, Partitioning]
) -> tuple[str, Partitioning]:
    """The placement of fewest partitions among those that cost no more than a tie above the searched one, and its name.
    Of equal numbers, the one on preferred backends (`Backend.priority`), then the cheapest.

    Parameters
    ----------
    found: what the search answered.
    alone: name -> placement on one backend, as far as it goes; costs are asked of the problem.
    """
    most = found.cost.seconds * (1.0 + TIE)
    tied = {SEARCHED: found}
    for name, cover in alone.items():
        rival = problem.partitioning(cover.candidates)
        if rival.cost.is_finite and rival.cost.seconds <= most:
            tied[name] = rival

    def preference(name: str) -> tuple[int, int, float]:
        placement = tied[name]
        ranks = [problem.priority(c.backend) for c in placement.candidates if c.backend != HOST]
        return len(placement.candidates), max(ranks, default=0), placement.cost.seconds

    best = min(tied, key=preference)
    return best, tied[best]


def tie_notes(found: Partitioning, choice: str) -> list[str]:
    """Why it is not the searched placement that ships."""
    if choice == SEARCHED:
        return []
    return [
        f"{choice} is told to take no more than {TIE:.0%} longer than the searched placement ("
        f"{len(found.candidates)} partitions), which counts as a tie: the simpler one ships, or the preferred one"
    ]
