"""SearchProblem: everything that a searcher may know (RFC 0062, phase 3).

A frozen view: graph, candidates, their costs and transitions, latencies of whole placements, priorities, budget and
random numbers. Costs and latencies are computed on request and memoised, so a cost that is not requested is not
measured.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from collage.cost.cost import Cost
from collage.cost.transition import Pair, Transition
from collage.errors import NoCoverError
from collage.graph.candidates import CandidatePartition, CandidateSet, covered
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.search.crossings import Crossings
from collage.search.hand_over import hand_overs
from collage.search.partitioning import Partitioning, execution_order
from collage.search.tables import CostTable, LatencyTable

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """What is to be covered, with what, at what cost.

    `dataclasses.replace` makes a view of other candidates; what is known of the costs is shared.

    Attributes
    ----------
    graph
        The dataflow graph.
    candidates
        Every candidate partition, indexed by first node.
    cost_table
        Behind `costs`; owned by whoever poses the problem.
    transitions
        What is charged when tensors of a partition of one backend enter a partition of another, directly or through
        nodes on the host (`collage.search.hand_over`). Absent pairs cost nothing.
    priorities
        Backend name -> declared priority; the *lower* number is preferred in ties and where costs are unknown.
    latency_table
        Behind `latencies`; owned by whoever poses the problem.
    crossings
        What is charged for copies, where backends are of several devices.
    budget_s
        Seconds that the search may take; None for no limit.
    seed
        Of `rng`.
    progress
        Called with one line on what is being done.
    started
        When the budget began, on the clock of `time.monotonic`.
    rng
        Random numbers of this problem; equal seeds give equal numbers.
    """

    graph: DataflowGraph
    candidates: CandidateSet
    cost_table: CostTable
    transitions: Mapping[Pair, Transition] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    latency_table: LatencyTable = field(default_factory=LatencyTable)
    crossings: Crossings | None = None
    budget_s: float | None = None
    seed: int = 0
    progress: Progress = lambda line: None
    started: float = field(default_factory=time.monotonic)
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rng", random.Random(self.seed))

    @property
    def nodes(self) -> IndexSet:
        """The nodes that a cover accounts for: calls, tuples and projections; inputs and constants are given."""
        return self.graph.coverable

    # Costs of candidates

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        """Cost of each candidate, estimated in one batch where it is not known. Host nodes are free."""
        return self.cost_table.costs(candidates)

    def cost(self, candidate: CandidatePartition) -> Cost:
        """Cost of one candidate; several go through `costs`, in one batch."""
        return self.costs([candidate])[0]

    def known(self, candidate: CandidatePartition) -> Cost | None:
        """The cost of a candidate if it has been estimated already; estimates nothing."""
        return self.cost_table.known(candidate)

    def workload(self, candidate: CandidatePartition) -> Hashable:
        """Candidates of equal workload have equal cost: knowing one is knowing all."""
        return self.cost_table.key(candidate)

    def intervals(self, candidates: Sequence[CandidatePartition]) -> Sequence[tuple[float, float]] | None:
        """Seconds (low, high) between which each cost is expected, (0, inf) where nothing is known; None when there is
        nothing to go by. Expectations, found at little expense, not guarantees.
        """
        ask = self.cost_table.intervals
        return None if ask is None else ask(candidates)

    def best(self, candidates: Iterable[CandidatePartition]) -> CandidatePartition | None:
        """The candidate of least cost per node, or None when every one is Invalid.

        For candidates over the same nodes this is the least cost. Known costs come before Unknown ones; declared
        priority decides among equal and among unknown costs, then the larger candidate, then its name.
        """
        offered = list(candidates)
        costs = dict(zip(offered, self.costs(offered), strict=True))

        def rank(candidate: CandidatePartition) -> tuple[bool, float, int, int, str]:
            cost, size = costs[candidate], len(candidate.sub_graph.inside)
            per_node = 0.0 if cost.is_unknown else cost.seconds / size
            return cost.is_unknown, per_node, self.priority(candidate.backend), -size, str(candidate)

        return min((c for c in offered if not costs[c].is_invalid), key=rank, default=None)

    def priority(self, backend: str) -> int:
        """Declared priority of a backend; the lower number is preferred."""
        return self.priorities.get(backend, 1_000_000)

    def transition_total(self, chosen: Sequence[CandidatePartition]) -> float:
        """Seconds of all transitions of an acyclic cover, and of its copies between devices."""
        total = 0.0 if self.crossings is None else self.crossings.seconds(self.graph, chosen)
        for producer, consumer, passed in hand_overs(chosen):
            if (producer, consumer) in self.transitions:
                size = sum(self.graph.nodes[node].size for node in passed)
                total += self.transitions[producer, consumer].seconds(size)
        return total

    # Latencies of whole placements

    @property
    def has_latencies(self) -> bool:
        """Whether there is hardware behind the problem on which whole placements can be run."""
        return self.latency_table.measure is not None

    def latencies(self, partitionings: Sequence[Partitioning]) -> list[Cost]:
        """End-to-end latency of each, in seconds: measured interleaved where it is not known; comparable with those of
        every earlier call. Invalid for one that fails; `Cost.unknown` without hardware.
        """
        return self.latency_table.latencies(partitionings)

    def latency(self, partitioning: Partitioning) -> Cost:
        """End-to-end latency of one partitioning; several that are to be compared go through `latencies`."""
        return self.latencies([partitioning])[0]

    @property
    def has_fresh_latencies(self) -> bool:
        """Whether `fresh_latencies` can be had."""
        return self.latency_table.remeasure is not None

    def fresh_latencies(self, partitionings: Sequence[Partitioning]) -> Sequence[Cost]:
        """End-to-end latencies measured once more, all interleaved, whatever is known; comparable with each other only.

        The least of many noisy latencies is too small (the winner's curse); fresh samples of a few are not. Without a
        device that measures afresh these are `latencies`.
        """
        again = self.latency_table.remeasure
        return self.latencies(partitionings) if again is None else again(partitionings)

    # The answer

    @property
    def time_left(self) -> float:
        """Seconds of the budget that are left; infinite without a budget."""
        return float("inf") if self.budget_s is None else self.budget_s - (time.monotonic() - self.started)

    def partitioning(
        self, chosen: Iterable[CandidatePartition], *, lower_bound: float = 0.0, notes: Iterable[str] = ()
    ) -> Partitioning:
        """Order the chosen candidates for execution, check that they are a legal cover, and sum their cost.

        A note on those of unknown cost is added to `notes`.

        Raises
        ------
        CollageError
            The choice is not a cover, or its quotient graph has a cycle (a defect of the searcher).
        """
        ordered = execution_order(self.graph, tuple(chosen))
        costs = self.costs(ordered)
        total = sum(costs, Cost.zero()) + Cost(self.transition_total(ordered))
        unknown = [str(c) for c, cost in zip(ordered, costs, strict=True) if cost.is_unknown]
        if unknown:
            more = f" and {len(unknown) - 4} more" if len(unknown) > 4 else ""
            notes = [*notes, f"chosen with unknown cost: {', '.join(unknown[:4])}{more}"]
        return Partitioning(ordered, total, lower_bound, tuple(notes))

    def require_coverable(self) -> None:
        """Raise `NoCoverError`, naming the nodes, when some node is in no candidate at all."""
        missing = self.nodes - covered(self.candidates)
        if missing:
            raise self._no_cover("no backend takes", missing)

    def require_runnable(
        self, nodes: IndexSet | None = None, costs: Mapping[CandidatePartition, Cost] | None = None
    ) -> None:
        """Raise `NoCoverError`, with the reasons, when every candidate of some node is Invalid.

        Parameters
        ----------
        nodes
            Those that are checked; None for all.
        costs
            Candidates and costs to go by; None asks for those of the candidates that contain one of the nodes.
        """
        nodes = self.nodes if nodes is None else nodes
        if costs is None:
            around = [c for c in self.candidates if not c.sub_graph.inside.isdisjoint(nodes)]
            costs = dict(zip(around, self.costs(around), strict=True))
        missing = nodes - covered(candidate for candidate, cost in costs.items() if not cost.is_invalid)
        if missing:
            reasons = dict.fromkeys(
                f"{candidate.backend}: {cost.reason or 'no reason given'}"
                for candidate, cost in costs.items()
                if cost.is_invalid and not candidate.sub_graph.inside.isdisjoint(missing)
            )
            shown = "; ".join(list(reasons)[:4]) + (f"; and {len(reasons) - 4} more" if len(reasons) > 4 else "")
            raise self._no_cover(f"every candidate failed ({shown}) that contains", missing)

    def _no_cover(self, why: str, missing: IndexSet) -> NoCoverError:
        names = ", ".join(f"{self.graph.nodes[i].op} (node {i})" for i in list(missing)[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        return NoCoverError(f"{why} {names}{more}: add a backend that can run it (`collage backends` lists them)")
