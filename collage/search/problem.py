"""All that a searcher may know: the problem, and the partitioning that it answers with (RFC 0062, phase 3).

A searcher is given a `SearchProblem` and returns a `Partitioning`. Whatever its method, the result meets the
conditions that `Partitioning.check` states: it covers every node exactly once, its quotient graph is acyclic, its
cost is finite, and the same costs give the same answer.

    class FewestPartitions(Searcher):
        def search(self, problem):
            ...
            return problem.partitioning(chosen, reason="fewest partitions")
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collage.cost import Cost
from collage.errors import CollageError, NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet, quotient_of
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.plugins import Parameterised

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Partitioning:
    """A cover of the graph: candidates in an order in which they can run, what they cost together, and why they were
    chosen.

    Attributes
    ----------
    candidates: in execution order; host nodes included (backend `host`).
    cost: sum of candidate costs and transition costs, in seconds.
    lower_bound: a proven lower bound on the cost of any cover, in seconds; equals `cost` when the searcher is exact.
    notes: what the user should know (ties broken by priority, unknown costs met, budget spent, ...).
    """

    candidates: tuple[CandidatePartition, ...]
    cost: Cost
    lower_bound: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def partitions(self) -> tuple[CandidatePartition, ...]:
        """The candidates that a backend runs, without the host's nodes."""
        return tuple(c for c in self.candidates if c.backend != HOST)

    @property
    def gap(self) -> float:
        """How far, relatively, the cost may be above the optimum: 0 when proven optimal."""
        return 0.0 if self.cost.seconds <= 0 else max(0.0, 1.0 - self.lower_bound / self.cost.seconds)


@dataclass
class SearchProblem:
    """What is to be covered, with what, at what cost.

    Attributes
    ----------
    graph: the dataflow graph.
    candidates: every candidate partition, indexed by first node.
    estimate: batched cost function, called once per distinct candidate; costs are memoised here.
    transitions: seconds charged when the output of a partition of one backend enters a partition of another, per
        ordered pair of neighbouring partitions; pairs that are absent cost nothing. The host is transparent.
    priorities: backend name -> declared priority; the *lower* number is preferred in ties and where costs are unknown.
    measure_latencies: end-to-end latencies of partitionings, in seconds, taken by turns so that they can be compared
        with each other and with every earlier call's; Invalid for one that does not compile, run, or give the right
        numbers. None when the problem has no hardware behind it.
    remeasure_latencies: the same, but run afresh, all in one go, whatever is known of them; None when that cannot be
        had.
    same_cost: candidates of equal key have equal cost (they are one workload), so that knowing one is knowing all; None
        when nothing is known of that.
    bounds: between which seconds the cost of each candidate is expected to lie, found at little expense; it may answer
        None, or be None, when there is nothing to go by. Expectations, not guarantees.
    budget_s: seconds that the search may take; None for no limit.
    seed: of `rng`.
    progress: called with one line on what is being done.
    """

    graph: DataflowGraph
    candidates: CandidateSet
    estimate: Callable[[Sequence[CandidatePartition]], Sequence[Cost]]
    transitions: Mapping[tuple[str, str], float] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    measure_latencies: Callable[[Sequence[Partitioning]], Sequence[Cost]] | None = None
    remeasure_latencies: Callable[[Sequence[Partitioning]], Sequence[Cost]] | None = None
    same_cost: Callable[[CandidatePartition], Hashable] | None = None
    bounds: Callable[[Sequence[CandidatePartition]], Sequence[tuple[float, float]] | None] | None = None
    budget_s: float | None = None
    seed: int = 0
    progress: Progress = lambda line: None
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._costs: dict[CandidatePartition, Cost] = {}
        self._latencies: dict[tuple[CandidatePartition, ...], Cost] = {}

    @property
    def nodes(self) -> IndexSet:
        """The nodes that a cover accounts for: calls, tuples and projections; inputs and constants are given."""
        return self.graph.coverable

    def costs(self, candidates: Sequence[CandidatePartition]) -> list[Cost]:
        """Cost of each candidate; lazily estimated, in one batch, and memoised. Host nodes are free."""
        missing = [c for c in dict.fromkeys(candidates) if c not in self._costs]
        for candidate in missing:
            if candidate.backend == HOST:
                self._costs[candidate] = Cost.zero()
        wanted = [c for c in missing if c.backend != HOST]
        if wanted:
            for candidate, cost in zip(wanted, self.estimate(wanted), strict=True):
                self._costs[candidate] = cost
        return [self._costs[c] for c in candidates]

    def known(self, candidate: CandidatePartition) -> Cost | None:
        """The cost of a candidate if it has been estimated already; estimates nothing."""
        return Cost.zero() if candidate.backend == HOST else self._costs.get(candidate)

    def cost(self, candidate: CandidatePartition) -> Cost:
        return self.costs([candidate])[0]

    def transition(self, producer: str, consumer: str) -> float:
        """Seconds for handing a tensor from a partition of backend `producer` to one of backend `consumer`."""
        if producer == consumer or HOST in (producer, consumer):
            return 0.0
        return self.transitions.get((producer, consumer), 0.0)

    def priority(self, backend: str) -> int:
        return self.priorities.get(backend, 1_000_000)

    def latencies(self, partitionings: Sequence[Partitioning]) -> list[Cost]:
        """End-to-end latency of each, measured on the device in one go and memoised; `Cost.unknown` when there is no
        hardware behind the problem.
        """
        if self.measure_latencies is None:
            return [Cost.unknown("the problem has no end-to-end measurement") for _ in partitionings]
        missing = [p for p in dict.fromkeys(partitionings) if p.candidates not in self._latencies]
        if missing:
            for partitioning, latency in zip(missing, self.measure_latencies(missing), strict=True):
                self._latencies[partitioning.candidates] = latency
        return [self._latencies[p.candidates] for p in partitionings]

    def latency(self, partitioning: Partitioning) -> Cost:
        """End-to-end latency of one partitioning; several that are to be compared go through `latencies`."""
        return self.latencies([partitioning])[0]

    def extended(self, candidates: Iterable[CandidatePartition]) -> SearchProblem:
        """The same problem with further candidates; what is known of the others stays known."""
        result = replace(self, candidates=CandidateSet([*self.candidates, *candidates]))
        result._costs, result._latencies = self._costs, self._latencies
        return result

    def restricted(self, backends: Collection[str]) -> SearchProblem:
        """The same problem with the candidates of some backends, and of the host; what is known of them stays known."""
        kept = {*backends, HOST}
        result = replace(self, candidates=CandidateSet(c for c in self.candidates if c.backend in kept))
        result._costs, result._latencies = self._costs, self._latencies
        return result

    @property
    def ran(self) -> bool:
        """Whether anything was run end to end."""
        return bool(self._latencies)

    @property
    def time_left(self) -> float:
        """Seconds of the budget that are left; infinite without a budget."""
        return float("inf") if self.budget_s is None else self.budget_s - (time.monotonic() - self.started)

    def partitioning(
        self, chosen: Iterable[CandidatePartition], *, lower_bound: float = 0.0, notes: Iterable[str] = ()
    ) -> Partitioning:
        """Order the chosen candidates for execution, check that they are a legal cover, and sum their cost.

        Raises
        ------
        CollageError: when the choice is not a cover or its quotient graph has a cycle (a defect of the searcher).
        """
        ordered = execution_order(self.graph, tuple(chosen))
        total = Cost.zero()
        for cost in self.costs(ordered):
            total = total + cost
        total = total + Cost(self.transition_total(ordered))
        return Partitioning(ordered, total, lower_bound, tuple(notes))

    def transition_total(self, chosen: Sequence[CandidatePartition]) -> float:
        """Seconds of all transitions of a cover: one per ordered pair of neighbouring partitions of different
        backends.
        """
        pairs = sorted(quotient_of(chosen).edges())
        return sum(self.transition(chosen[a].backend, chosen[b].backend) for a, b in pairs)

    def require_coverable(self) -> None:
        """Raise `NoCoverError`, naming the nodes, when some node is in no candidate at all."""
        reachable = 0
        for candidate in self.candidates:
            reachable |= candidate.sub_graph.inside.bits
        self.raise_uncovered(self.nodes - IndexSet.from_bits(reachable), "no backend takes")

    def raise_uncovered(self, missing: IndexSet, why: str) -> None:
        if missing:
            names = ", ".join(f"{self.graph.nodes[i].op} (node {i})" for i in list(missing)[:8])
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            raise NoCoverError(f"{why} {names}{more}: add a backend that can run it (`collage backends` lists them)")


def execution_order(graph: DataflowGraph, chosen: Sequence[CandidatePartition]) -> tuple[CandidatePartition, ...]:
    """The candidates in an order in which they can run, lowest first node first where there is a choice.

    Raises
    ------
    CollageError: when two candidates overlap, a node is left out, or the quotient graph has a cycle.
    """
    owner: dict[int, int] = {}
    for i, candidate in enumerate(chosen):
        for node in candidate.sub_graph.inside:
            if node in owner:
                raise CollageError(f"not a cover: node {node} is in {chosen[owner[node]]} and in {candidate}")
            owner[node] = i
    missing = [node for node in graph.coverable if node not in owner]
    if missing:
        raise CollageError(f"not a cover: nodes {IndexSet(missing)} are in no candidate")
    order = quotient_of(chosen).order
    if len(order) != len(chosen):
        cyclic = [str(candidate) for i, candidate in enumerate(chosen) if i not in order]
        raise CollageError(f"the partitions depend on each other in a cycle: {', '.join(cyclic[:6])}")
    return tuple(chosen[i] for i in order)


class Searcher(Parameterised, ABC):
    """Finds a cover of small cost. Constructors store parameters and do nothing else."""

    @abstractmethod
    def search(self, problem: SearchProblem) -> Partitioning:
        """Return a legal cover.

        Raises
        ------
        NoCoverError: no cover of finite cost exists; the message names the nodes that nobody can run.
        """
