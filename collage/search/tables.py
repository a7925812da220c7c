"""CostTable and LatencyTable: the memoised numbers behind a search problem.

They belong to the code that poses the problem. A searcher reads them through its view (`SearchProblem`), so several
problems over other candidates of one network share what has been estimated and measured.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.search.partitioning import Partitioning

Estimate = Callable[[Sequence[CandidatePartition]], Sequence[Cost]]
Intervals = Callable[[Sequence[CandidatePartition]], Sequence[tuple[float, float]] | None]
Measure = Callable[[Sequence[Partitioning]], Sequence[Cost]]


class CostTable:
    """Costs of candidates, estimated on demand, in batches, once per candidate. Host nodes are free.

    Parameters
    ----------
    estimate
        Batched cost function.
    key
        Candidates of equal key are one workload and have equal cost; None when nothing is known of that.
    intervals
        Bounds in seconds (low, high) between which costs are expected, found at little expense. It may answer None, or
        be None, when there is nothing to go by. Expectations, not guarantees.
    """

    def __init__(
        self,
        estimate: Estimate,
        key: Callable[[CandidatePartition], Hashable] | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        self.estimate = estimate
        self.intervals = intervals
        self._key = key
        self._known: dict[CandidatePartition, Cost] = {}

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        """Cost of each candidate."""
        missing = [c for c in dict.fromkeys(candidates) if self.known(c) is None]
        if missing:
            self._known.update(zip(missing, self.estimate(missing), strict=True))
        return [Cost.zero() if c.backend == HOST else self._known[c] for c in candidates]

    def known(self, candidate: CandidatePartition) -> Cost | None:
        """The cost of a candidate if it has been estimated already."""
        return Cost.zero() if candidate.backend == HOST else self._known.get(candidate)

    def key(self, candidate: CandidatePartition) -> Hashable:
        """What candidates of one workload have in common."""
        return candidate if self._key is None else self._key(candidate)

    def knowing(self, candidate: CandidatePartition, cost: Cost) -> CostTable:
        """The same table, with the cost of a candidate that was not estimated."""
        other = CostTable(self.estimate, self._key, self.intervals)
        other._known = {**self._known, candidate: cost}
        return other

    def corrected(self, estimate: Estimate) -> CostTable:
        """A table of other costs for the same workloads, of which nothing is known yet."""
        return CostTable(estimate, self._key, self.intervals)


class LatencyTable:
    """End-to-end latencies of partitionings, in seconds, measured on demand and once per partitioning.

    Parameters
    ----------
    measure
        Measures partitionings interleaved with each other, so that they compare with each other and with those of every
        earlier call; Invalid for one that does not compile, run, or give the right numbers. None when the problem has
        no hardware behind it.
    remeasure
        The same, but afresh and all in one go, whatever is known of them; None when that cannot be had.
    """

    def __init__(self, measure: Measure | None = None, remeasure: Measure | None = None) -> None:
        self.measure = measure
        self.remeasure = remeasure
        self._known: dict[tuple[CandidatePartition, ...], Cost] = {}

    def latencies(self, partitionings: Sequence[Partitioning]) -> list[Cost]:
        """Latency of each; `Cost.unknown` without hardware."""
        if self.measure is None:
            return [Cost.unknown("the problem has no end-to-end measurement") for _ in partitionings]
        missing = [p for p in dict.fromkeys(partitionings) if p.candidates not in self._known]
        if missing:
            self._known.update(zip([p.candidates for p in missing], self.measure(missing), strict=True))
        return [self._known[p.candidates] for p in partitionings]

    @property
    def used(self) -> bool:
        """Whether anything was run end to end."""
        return bool(self._known)
