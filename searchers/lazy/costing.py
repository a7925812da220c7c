"""Lazy costing: only candidates that may still be on the best path are costed.

The method is LazySP (Dellin and Srinivasa, *A Unifying Formalism for Shortest Path Problems with Expensive Edge
Evaluations via Lazy Best-First Search over Paths with Edge Selectors*, ICAPS 2016). Candidates that are not costed
weigh what they cost at least (`searchers.lazy.cost_bounds`). The best cover under these weights is searched, and its
candidates that are not costed are costed, in one batch. This repeats until all of the best cover is costed. No other
cover can be better then, if the bounds hold: its weight was a lower bound on its cost, and it was not the least.
Candidates that are one workload (`SearchProblem.workload`) are costed together.

Bounds that rest on assumptions may not hold. If costs are left to spend, the bounds are widened step by step, and the
search goes on with the candidates that they hid, until many in a row have gained nothing. The answer is the best cover
of all that was costed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import SearchProblem
from searchers.lazy.cost_bounds import CostBounds

_NOT_COSTED = Cost.invalid("not costed")


class LazyCosts:
    """The costs that are known, and bounds for the rest.

    Parameters
    ----------
    problem
        Whose candidates are costed.
    bounds
        For what is not.
    max_share
        Up to which share of the distinct workloads are costed with bounds that were widened.
    tolerance
        What is cheaper by no more than this share is not looked for; 0 looks for everything.
    patience
        Nothing more is costed with bounds that were widened when so many distinct workloads in a row have made the best
        costed cover cheaper by no more than the tolerance; None goes on.

    Attributes
    ----------
    candidates
        Of the problem, in its order.
    best
        Seconds of the cheapest path that was costed entirely.
    rounds
        Batches that were costed.
    """

    def __init__(
        self,
        problem: SearchProblem,
        bounds: CostBounds,
        max_share: float = 0.0,
        tolerance: float = 0.0,
        patience: int | None = None,
    ) -> None:
        if not 0 <= max_share <= 1:
            raise ValueError(f"the share of workloads to be costed is between 0 and 1, not {max_share}")
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"the tolerance of lazy costing is a share of at least 0, not {tolerance}")
        if patience is not None and patience < 1:
            raise ValueError(f"the patience of lazy costing is a number of workloads, at least 1, not {patience}")
        self.candidates: Sequence[CandidatePartition] = list(problem.candidates)
        self.rounds = 0
        self.best = math.inf
        self._tolerance = tolerance
        self._tolerated = False
        self._patience = patience
        self._checked, self._checked_at = math.inf, -math.inf
        self._stalled = False
        self._problem = problem
        self._bounds = bounds
        self._members: dict[Hashable, list[CandidatePartition]] = {}
        self._key: dict[CandidatePartition, Hashable] = {}
        for candidate in self.candidates:
            if candidate.backend != HOST:
                key = problem.workload(candidate)
                self._key[candidate] = key
                self._members.setdefault(key, []).append(candidate)
        self._known: dict[CandidatePartition, Cost] = {}
        self._costed: set[Hashable] = set()
        self._limit = math.floor(max_share * len(self._members))

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
        self._costed.update(keys)
        self._bounds.learn(costs)

    def pay(self, path: Sequence[CandidatePartition]) -> None:
        """Take notice of what a path costs, where all of it is costed."""
        known = [Cost.zero() if c.backend == HOST else self._known.get(c, _NOT_COSTED) for c in path]
        if all(cost.is_finite and not cost.is_predicted for cost in known):
            seconds = sum(cost.seconds for cost in known) + self._problem.transition_total(path)
            self.best = min(self.best, seconds)

    def tolerates(self, seconds: float) -> bool:
        """Whether a path of this weight is not worth costing: one that is costed takes hardly longer than it may."""
        found = self._tolerance > 0 and self.best <= (1.0 + self._tolerance) * seconds
        self._tolerated = self._tolerated or found
        return found

    def uncosted(self, candidates: Iterable[CandidatePartition]) -> list[CandidatePartition]:
        return [c for c in candidates if c.backend != HOST and c not in self._known]

    def batch(self, candidates: Iterable[CandidatePartition], limited: bool = False) -> list[CandidatePartition]:
        """What to cost next of a path: a candidate of each workload that is not costed, all in one batch, the most
        uncertain first, since a budget may not reach for all; with `limited`, as many as the share of workloads allows.
        """
        uncertainty: dict[Hashable, float] = {}
        for candidate in self.uncosted(candidates):
            key = self._key[candidate]
            uncertainty[key] = uncertainty.get(key, 0.0) + self._bounds.uncertainty(candidate)
        chosen = [self._members[key][0] for key in sorted(uncertainty, key=lambda k: -uncertainty[k])]
        if limited:
            chosen = chosen[: 0 if self._is_over else max(0, self._limit - len(self._costed))]
        return chosen

    @property
    def is_check_due(self) -> bool:
        """Whether so much was costed since the last check that it is time to see what came of it."""
        return self._patience is not None and len(self._costed) >= self._checked_at + self._patience

    def check(self, seconds: float) -> None:
        """Take notice of what the best cover of all that was costed takes; infinite where there is none."""
        self._stalled = math.isfinite(seconds) and self._checked <= (1.0 + self._tolerance) * seconds
        self._checked, self._checked_at = seconds, len(self._costed)

    def widen(self) -> bool:
        """Assume less, where more may still be costed and there is more to be costed."""
        return len(self._costed) < min(self._limit, len(self._members)) and not self._is_over and self._bounds.widen()

    @property
    def unlimited(self) -> bool:
        """Whether all workloads may be costed."""
        return self._limit >= len(self._members) and not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._stalled or self._bounds.spent

    def confirm(self) -> None:
        """An exact search asked for nothing more."""
        self._bounds.confirm()

    @property
    def proven(self) -> bool:
        """Whether what `weights` lead to holds whatever the other candidates cost."""
        return self._bounds.proven or len(self._costed) == len(self._members)

    def weights(self) -> list[Cost]:
        """Per candidate, its cost, or what it costs at least."""
        # Costs are compared in whole picoseconds: a bound that was rounded up would be none.
        return self._weights(lambda c: Cost(math.floor(self._bounds.seconds(c) * 1e12) / 1e12))

    def free_weights(self) -> list[Cost]:
        """Per candidate, its cost; nothing where it is not known. What follows from these is proven."""
        return self._weights(lambda c: Cost.zero())

    def costed_weights(self, predicted: bool) -> list[Cost]:
        """Per candidate, its cost; Invalid where it is not known (or is predicted, unless those are wanted)."""
        weights = self._weights(lambda c: _NOT_COSTED)
        return weights if predicted else [_NOT_COSTED if w.is_predicted else w for w in weights]

    def notes(self) -> list[str]:
        """How much was costed, and on what assumption that was enough."""
        within = f"; what is cheaper by up to {self._tolerance:.0%} was not looked for" if self._tolerated else ""
        stalled = f"; no more was costed after {self._patience} workloads that gained nothing" if self._stalled else ""
        return [
            f"costed lazily, in {self.rounds} rounds: {len(self._known)} of {len(self._key)} candidates, "
            f"{len(self._costed)} of {len(self._members)} distinct workloads; {self._bounds.assumption}"
            f"{within}{stalled}"
        ]

    def _weights(self, otherwise: Callable[[CandidatePartition], Cost]) -> list[Cost]:
        weights = []
        for candidate in self.candidates:
            known = Cost.zero() if candidate.backend == HOST else self._known.get(candidate)
            weights.append(known if known is not None else otherwise(candidate))
        return weights
