"""Predicted bounds: an estimator's intervals as cost bounds, so that only candidates that matter are measured.

This is active learning by optimism in the face of uncertainty (Auer, *Using Confidence Bounds for
Exploitation-Exploration Trade-offs*, JMLR 2002), by `SearchProblem.intervals`. At first every candidate is taken to
cost the geometric middle of its interval, and the best cover by that is measured. Then candidates are taken to cost
less, step by step, down to the lower end of their interval, and every cover that looks better than the best measured
one is measured as well. With the whole interval granted, no candidate that is left is in a better cover, unless its
cost is outside its interval.

Measurements correct the predictions for the same backend. Candidates that share nodes with the measured one err alike,
the more they share the more. The others are shifted by the mean error of the backend (a kernel regression on the
logarithm). An interval of no width is a cost that is known, as from a record: it teaches nothing of predictions, and no
error of others moves it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from collage.cost.cost import PREDICTED, Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search import SearchProblem
from searchers.lazy.cost_bounds import largest_first

#: In how many steps the lower end of the interval is reached.
_STEPS = 4
#: Two candidates count as alike by this power of the share of nodes that they have in common (Jaccard's index).
_SHARPNESS = 3
#: How many equal candidates the mean error of the backend weighs as much as; and how many errors zero does, in that.
_PRIOR, _SHRINKAGE = 0.3, 3
#: Candidates of fewer nodes are not measured before the first search.
_LARGE = 4


class PredictedBounds:
    """Bounds from intervals.

    Parameters
    ----------
    intervals
        Candidate -> (low, high), in seconds; (0, inf) where nothing is known.
    """

    proven = False

    def __init__(self, intervals: Mapping[CandidatePartition, tuple[float, float]]) -> None:
        self.spent = False
        self._step = 0
        self._confirmed = False
        self._middle: dict[CandidatePartition, float] = {}
        self._half: dict[CandidatePartition, float] = {}
        self._by_backend: dict[str, list[CandidatePartition]] = defaultdict(list)
        self._low = {candidate: max(0.0, low) for candidate, (low, _) in intervals.items()}
        for candidate, (low, high) in intervals.items():
            if low > 0 and math.isfinite(high):
                self._middle[candidate] = (math.log(low) + math.log(high)) / 2
                self._half[candidate] = (math.log(high) - math.log(low)) / 2
                self._by_backend[candidate.backend].append(candidate)
        predicted = [candidate for candidate, half in self._half.items() if half > 0]
        self._error = dict.fromkeys(predicted, 0.0)
        self._weight = dict.fromkeys(predicted, 0.0)
        self._errors: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))

    @classmethod
    def of(cls, problem: SearchProblem) -> PredictedBounds | None:
        """Those of a problem; None where it has none."""
        asked = [c for c in problem.candidates if c.backend != HOST]
        intervals = problem.intervals(asked)
        return None if intervals is None else cls(dict(zip(asked, intervals, strict=True)))

    @property
    def assumption(self) -> str:
        if self._confirmed and not self.spent:
            return "assumed: what is not costed is inside its predicted interval"
        granted = f"{self._step / _STEPS:.0%} of their predicted intervals were looked into"
        return f"the budget of measuring is spent: {granted}" if self.spent else granted

    def first(self) -> list[CandidatePartition]:
        """Of every backend its largest, disjoint candidates: what the whole takes is the hardest to predict."""
        largest: list[CandidatePartition] = []
        for backend in sorted(self._by_backend):
            taken = 0
            for candidate in sorted(self._by_backend[backend], key=largest_first):
                inside = candidate.sub_graph.inside
                if len(inside) >= _LARGE and inside.bits & taken == 0:
                    largest.append(candidate)
                    taken |= inside.bits
        return largest

    def learn(self, costs: Mapping[CandidatePartition, Cost]) -> None:
        # What a machine prevented is predicted for that reason, and says nothing about the budget.
        self.spent = self.spent or any(cost.reason == PREDICTED for cost in costs.values())
        for candidate, cost in costs.items():
            if cost.is_predicted or not cost.is_finite or cost.seconds <= 0 or candidate not in self._error:
                continue
            error = math.log(cost.seconds) - self._middle[candidate]
            total, count = self._errors[candidate.backend]
            self._errors[candidate.backend] = (total + error, count + 1)
            bits = candidate.sub_graph.inside.bits
            for other in self._by_backend[candidate.backend]:
                theirs = other.sub_graph.inside.bits
                if bits & theirs and other in self._error:
                    alike = ((bits & theirs).bit_count() / (bits | theirs).bit_count()) ** _SHARPNESS
                    self._error[other] += alike * error
                    self._weight[other] += alike

    def seconds(self, candidate: CandidatePartition) -> float:
        if candidate not in self._error:
            return self._low[candidate]
        total, count = self._errors[candidate.backend]
        prior = total / (count + _SHRINKAGE)
        shift = (self._error[candidate] + _PRIOR * prior) / (self._weight[candidate] + _PRIOR)
        bound = math.exp(self._middle[candidate] + shift - self._half[candidate] * self._step / _STEPS)
        # What is learned of others may lift a bound over the lower end of the interval, but not in the end: a cost
        # inside its interval is promised to be found.
        return bound if self._step < _STEPS else min(bound, self._low[candidate])

    def uncertainty(self, candidate: CandidatePartition) -> float:
        """Half the width of the interval; a second where nothing is known."""
        if candidate not in self._middle:
            return 1.0
        return math.exp(self._middle[candidate]) * self._half[candidate]

    def widen(self) -> bool:
        """A step further to the lower end."""
        if self._step >= _STEPS:
            return False
        self._step += 1
        return True

    def confirm(self) -> None:
        self._confirmed = self._step == _STEPS
