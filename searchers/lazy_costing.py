"""Lazy costing: only what may still be on the best path is costed (Dellin and Srinivasa, *A Unifying Formalism for
Shortest Path Problems with Expensive Edge Evaluations via Lazy Best-First Search over Paths with Edge Selectors*,
ICAPS 2016: LazySP).

Candidates that are not costed weigh what they cost at least (`searchers.cost_bounds`). The best cover under these
weights is searched, and what is not costed on it is costed, in one batch; so it goes on until the best cover is costed
entirely. No other cover can be better then: its weight was a lower bound on what it costs, and it was not the least.
Candidates that are one workload (`SearchProblem.same_cost`) are costed together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from collage.candidates import HOST, CandidatePartition
from collage.cost import Cost
from collage.search import SearchProblem
from searchers.cost_bounds import CostBounds


class LazyCosts:
    """The costs that are known, and bounds for the rest.

    Attributes
    ----------
    candidates: of the problem, in its order.
    rounds: batches that were costed.
    """

    def __init__(self, problem: SearchProblem, bounds: CostBounds) -> None:
        self.candidates: Sequence[CandidatePartition] = list(problem.candidates)
        self.rounds = 0
        self._problem = problem
        self._bounds = bounds
        self._members: dict[Hashable, list[CandidatePartition]] = {}
        self._key: dict[CandidatePartition, Hashable] = {}
        for candidate in self.candidates:
            if candidate.backend != HOST:
                key = candidate if problem.same_cost is None else problem.same_cost(candidate)
                self._key[candidate] = key
                self._members.setdefault(key, []).append(candidate)
        self._known: dict[CandidatePartition, Cost] = {}

    def start(self) -> None:
        """Cost the bounds' first choice; what the problem knows already, and its equals, come along."""
        known = [c for c in self._key if self._problem.known(c) is not None]
        self.cost([*known, *self._bounds.first()])

    def cost(self, candidates: Iterable[CandidatePartition]) -> None:
        """Cost these, and those that cost the same, in one batch."""
        keys = dict.fromkeys(self._key[c] for c in candidates if c.backend != HOST)
        batch = [c for key in keys for c in self._members[key] if c not in self._known]
        if not batch:
            return
        self.rounds += 1
        costs = dict(zip(batch, self._problem.costs(batch), strict=True))
        self._known.update(costs)
        self._bounds.learn(costs)

    def uncosted(self, candidates: Iterable[CandidatePartition]) -> list[CandidatePartition]:
        return [c for c in candidates if c.backend != HOST and c not in self._known]

    def weights(self) -> list[Cost]:
        """Per candidate, its cost, or what it costs at least."""
        return [self._weight(candidate) for candidate in self.candidates]

    def notes(self) -> list[str]:
        """How much was costed, and on what assumption that was enough."""
        keys = {self._key[c] for c in self._known}
        return [
            f"costed lazily, in {self.rounds} rounds: {len(self._known)} of {len(self._key)} candidates, "
            f"{len(keys)} of {len(self._members)} distinct workloads; {self._bounds.assumption}"
        ]

    def _weight(self, candidate: CandidatePartition) -> Cost:
        if candidate.backend == HOST:
            return Cost.zero()
        known = self._known.get(candidate)
        # Costs are compared in whole picoseconds: a bound that was rounded up would be none.
        return known if known is not None else Cost(math.floor(self._bounds.seconds(candidate) * 1e12) / 1e12)
