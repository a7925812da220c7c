"""Ties: of placements that costs cannot tell apart, the simplest one ships, if nothing is run end to end.

A search adds up the costs of hundreds of candidates and takes the least sum, even if it is smaller by a thousandth
only. Sums of costs are not that exact, and sums of predicted costs even less: the minimum over thousands of candidates
has a winner's curse. A tie (`Cost.ties`) is a difference inside the intervals, which are wide for predicted costs, or
under 2%. A tie goes to the placement of fewer partitions, because each partition is one more cost that may be wrong,
and then to the declared preference.
"""

from __future__ import annotations

from collections.abc import Mapping

from collage.confirm.confirmation import SEARCHED
from collage.graph.candidates import HOST
from collage.measure.statistics import TIE
from collage.search import Partitioning, SearchProblem


def simplest(
    problem: SearchProblem, found: Partitioning, baselines: Mapping[str, Partitioning]
) -> tuple[str, Partitioning]:
    """The placement of fewest partitions among those whose costs tie with the searched one's, and its name.
    Of equal numbers, the one on preferred backends (`Backend.priority`), then the cheapest.

    Parameters
    ----------
    found
        The answer of the search.
    baselines
        Name -> placement on one backend, as far as possible; their costs come from the problem.
    """
    tied = {SEARCHED: found}
    for name, cover in baselines.items():
        baseline = problem.partitioning(cover.candidates)
        if found.cost.is_finite and baseline.cost.is_finite and baseline.cost.ties(found.cost, TIE):
            tied[name] = baseline

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
        f"{choice} and the searched placement ({len(found.candidates)} partitions) tie, as far as costs can tell: "
        "the simpler one ships, or the preferred one"
    ]
