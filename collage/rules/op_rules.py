"""Base rules on single operators (RFC 0062, "OpPredicatePartitionRule", "OpCallByKindPartitionRule")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.kinds import NodeKind, OpKind
from collage.rules.base import PartitionRule, PartitionSpec, candidate_of


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
