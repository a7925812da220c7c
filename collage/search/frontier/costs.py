"""Costs under a price on errors, from which any searcher makes a frontier; and lower bounds of costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search.tables import CostTable

SquaredError = Callable[[CandidatePartition], float]


class SquaredErrors:
    """Squared errors of candidates, each asked for once. Nodes on the host have none.

    Parameters
    ----------
    of
        Of one candidate; infinite, or NaN, for one that is not allowed.
    """

    def __init__(self, of: SquaredError) -> None:
        self._of = of
        self._known: dict[CandidatePartition, float] = {}

    def of(self, candidate: CandidatePartition) -> float:
        """Squared error; infinite where the candidate is not allowed.

        Raises
        ------
        ValueError
            It is negative.
        """
        if candidate not in self._known:
            found = 0.0 if candidate.backend == HOST else float(self._of(candidate))
            if found < 0:
                raise ValueError(f"the squared error of {candidate} is negative: {found}")
            self._known[candidate] = math.inf if math.isnan(found) else found
        return self._known[candidate]

    def total(self, chosen: Iterable[CandidatePartition]) -> float:
        """Of a cover."""
        return math.fsum(self.of(candidate) for candidate in chosen)


class PricedCosts(CostTable):
    """`weigh(seconds, squared error)` in the place of the costs of another table.

    Invalid and Unknown stay so; what is not allowed is Invalid. What the other table knows is known here.
    """

    def __init__(self, costs: CostTable, errors: SquaredErrors, weigh: Callable[[float, float], float]) -> None:
        super().__init__(self._estimated, self._workload, None if costs.intervals is None else self._between)
        self._costs, self._errors, self._weigh = costs, errors, weigh

    def known(self, candidate: CandidatePartition) -> Cost | None:
        known = super().known(candidate)
        if known is None:
            cost = self._costs.known(candidate)
            known = None if cost is None else self._weighed(candidate, cost)
            if known is not None:
                self._known[candidate] = known
        return known

    def _estimated(self, asked: Sequence[CandidatePartition]) -> list[Cost]:
        return [self._weighed(c, cost) for c, cost in zip(asked, self._costs.costs(asked), strict=True)]

    def _weighed(self, candidate: CandidatePartition, cost: Cost) -> Cost:
        if cost.is_invalid or cost.is_unknown:
            return cost
        weighed = self._weigh(cost.seconds, self._errors.of(candidate))
        return Cost.invalid("its error is not allowed") if math.isinf(weighed) else replace(cost, seconds=weighed)

    def _workload(self, candidate: CandidatePartition) -> Hashable:
        """One workload errs differently in different places."""
        return self._costs.key(candidate), self._errors.of(candidate)

    def _between(self, asked: Sequence[CandidatePartition]) -> list[tuple[float, float]] | None:
        ends = None if self._costs.intervals is None else self._costs.intervals(asked)
        if ends is None:
            return None
        errors = [self._errors.of(c) for c in asked]
        return [(self._weigh(low, e), self._weigh(high, e)) for (low, high), e in zip(ends, errors, strict=True)]


class LeastCosts(CostTable):
    """The costs of another table, and for what is not costed there the least that it may be. Nothing is estimated.

    Parameters
    ----------
    least
        Seconds, of candidates that may not be costed; zero for those that are not in it.
    """

    def __init__(self, costs: CostTable, least: Mapping[CandidatePartition, float]) -> None:
        super().__init__(self.costs, costs.key)
        self._costs, self._least = costs, least

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        return [self.known(c) for c in candidates]

    def known(self, candidate: CandidatePartition) -> Cost:
        return self._costs.known(candidate) or Cost(self._least.get(candidate, 0.0))


def least_costs(costs: CostTable, candidates: Iterable[CandidatePartition]) -> dict[CandidatePartition, float]:
    """The lower ends of the intervals of those that are not costed; empty where there are no intervals."""
    asked = [c for c in candidates if costs.known(c) is None]
    ends = costs.intervals(asked) if asked and costs.intervals is not None else None
    return {} if ends is None else {c: low for c, (low, _) in zip(asked, ends, strict=True) if 0 < low < math.inf}
