"""Combinator rules: transform the candidates of the rules below them (RFC 0062, "PartitionRule" combinators)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph, SubGraphConfig
from collage.rules.base import PartitionRule, PartitionSpec, distinct


@dataclass(frozen=True)
class CompositePartitionRule(PartitionRule):
    """Labels each candidate: all its nodes are one composite, by which a library backend recognises its pattern."""

    label: str
    rule: PartitionRule

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        found = self.rule.all_candidates(graph, spec)
        return distinct(replace(c, composites=((self.label, c.sub_graph.inside),)) for c in found)


@dataclass(frozen=True)
class CalledPartitionRule(PartitionRule):
    """The candidates of a library's rule, for partitions of another backend that call it: their labels name it."""

    library: str
    rule: PartitionRule

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        found = self.rule.all_candidates(graph, spec)
        return [
            replace(c, composites=tuple((f"{self.library}:{label}", nodes) for label, nodes in c.composites))
            for c in found
        ]


@dataclass(frozen=True)
class PrimitivePartitionRule(PartitionRule):
    """Draws the partition boundary: keeps the candidates that can be a function of their own for an external compiler.

    Such a candidate has a call inside, its nested composites are disjoint and inside, and only tensors cross its
    boundary: no tuple or shape goes in or comes out.
    """

    rule: PartitionRule

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        found = self.rule.all_candidates(graph, spec)
        return [c for c in found if c.sub_graph.has_tensor_boundary and composites_fit(c)]


@dataclass(frozen=True)
class UnionPartitionRule(PartitionRule):
    """The candidates of all the rules."""

    rules: tuple[PartitionRule, ...]

    def __init__(self, *rules: PartitionRule) -> None:
        object.__setattr__(self, "rules", rules)

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return distinct(c for rule in self.rules for c in rule.all_candidates(graph, spec))


@dataclass(frozen=True)
class OnlyValidPartitionRule(PartitionRule):
    """Keeps the candidates whose sub-graph is valid under `config` (SubGraph.is_valid)."""

    rule: PartitionRule
    config: SubGraphConfig

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return [c for c in self.rule.all_candidates(graph, spec) if c.sub_graph.is_valid(self.config)]


@dataclass(frozen=True)
class FilterPartitionRule(PartitionRule):
    """Keeps the candidates whose sub-graph satisfies a predicate."""

    rule: PartitionRule
    keep: Callable[[SubGraph], bool]

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        return [c for c in self.rule.all_candidates(graph, spec) if self.keep(c.sub_graph)]


def composites_fit(candidate: CandidatePartition) -> bool:
    """Whether the nested composites are disjoint and inside."""
    seen = IndexSet()
    for _, nodes in candidate.composites:
        if not nodes.isdisjoint(seen) or not nodes <= candidate.sub_graph.inside:
            return False
        seen = seen | nodes
    return True
