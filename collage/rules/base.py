"""PartitionRule, which finds the candidate partitions of one backend in a dataflow graph (RFC 0062, "PartitionRule"),
and the base rules on single operators ("OpPredicatePartitionRule", "OpCallByKindPartitionRule").

Rules form a tree. A *base* rule looks at the graph; a *combinator* rule transforms the candidates of the rules below
it. The same combinators serve native, library and graph backends, so that a backend's whole fusion policy is one
expression.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind
from collage.graph.sub_graph import SubGraph


class PartitionRule(ABC):
    """A way to find candidate partitions."""

    @abstractmethod
    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        """Every candidate for the spec's backend, distinct, in a deterministic order; they may overlap."""


@dataclass(frozen=True)
class PartitionSpec:
    """A `PartitionRule` and the backend for which it finds candidates."""

    rule: PartitionRule
    backend: str

    def candidates(self, graph: DataflowGraph) -> list[CandidatePartition]:
        return self.rule.all_candidates(graph, self)


def candidate_of(graph: DataflowGraph, spec: PartitionSpec, nodes: Iterable[int]) -> CandidatePartition:
    """The candidate that runs `nodes` on the spec's backend."""
    return CandidatePartition(SubGraph(graph, IndexSet(nodes)), spec.backend)


def distinct(candidates: Iterable[CandidatePartition]) -> list[CandidatePartition]:
    """The candidates without repetitions, in the order in which they first appear."""
    return list(dict.fromkeys(candidates))


@dataclass(frozen=True)
class OpPredicatePartitionRule(PartitionRule):
    """One candidate per call, tuple or projection for which `predicate` holds."""

    predicate: Callable[[DataflowNode], bool]

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        nodes = (graph.nodes[index] for index in graph.coverable)
        return [candidate_of(graph, spec, [node.index]) for node in nodes if self.predicate(node)]


@dataclass(frozen=True)
class OpCallByKindPartitionRule(PartitionRule):
    """One candidate per call whose operator kind is at most `max_kind`: by default all that can be fused."""

    max_kind: OpKind = OpKind.ANCHOR

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        nodes = (node for node in graph.nodes if node.kind is NodeKind.CALL and node.op_kind <= self.max_kind)
        return [candidate_of(graph, spec, [node.index]) for node in nodes]
