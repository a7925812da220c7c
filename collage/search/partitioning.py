"""Partitioning: the answer of a searcher, and the order in which its partitions can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.graph.candidates import HOST, CandidatePartition, quotient_of
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet


@dataclass(frozen=True)
class Partitioning:
    """A cover of the graph: candidates in an order in which they can run, their total cost, and notes on the choice.

    `SearchProblem.partitioning` makes one, and checks that it is legal.

    Attributes
    ----------
    candidates
        In execution order, host nodes included (backend `host`).
    cost
        Sum of candidate costs and transition costs, in seconds.
    lower_bound
        A proven lower bound on the cost of any cover, in seconds; equals `cost` when the searcher is exact.
    notes
        What the user should know: ties broken by priority, unknown costs, a spent budget.
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


def execution_order(graph: DataflowGraph, chosen: Sequence[CandidatePartition]) -> tuple[CandidatePartition, ...]:
    """The candidates in an order in which they can run, lowest first node first where there is a choice.

    Raises
    ------
    CollageError
        Two candidates overlap, a node is left out, or the quotient graph has a cycle.
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
