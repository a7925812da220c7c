"""DFPatternPartitionRule: every match of a Relax dataflow pattern (RFC 0062, "DFPatternPartitionRule").

Relax's own matcher gives at most one match per root. Which match that is depends on the order of alternatives, and
the one it hides may be the better partition; so this rule enumerates all of them (`collage.rules.matcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.rules.base import PartitionRule, PartitionSpec, distinct
from collage.rules.matcher import Matcher


@dataclass(frozen=True)
class PatternMatch:
    """One way in which a pattern matches.

    Attributes
    ----------
    graph
        The graph in which it matches.
    root
        The node that the whole pattern matches.
    inside
        The nodes that call, tuple and projection patterns match; what wildcards match stays outside.
    bindings
        `tvm.relax.dpl` pattern -> the Relax expression that it matches, for every pattern that takes part.
    """

    graph: DataflowGraph
    root: DataflowNode
    inside: IndexSet
    bindings: Mapping[Any, Any]


@dataclass(frozen=True)
class DFPatternPartitionRule(PartitionRule):
    """A candidate for every match at every root; matches may overlap.

    Attributes
    ----------
    pattern
        A `tvm.relax.dpl.DFPattern`.
    check
        Refuses a match by returning False (a layout or a type that the library does not take).
    """

    pattern: Any
    check: Callable[[PatternMatch], bool] | None = None

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        matcher = Matcher(graph)
        found: list[CandidatePartition] = []
        for root in (graph.nodes[i] for i in graph.coverable):
            for inside, bindings in matcher.matches(self.pattern, root):
                match = PatternMatch(graph, root, inside, bindings)
                if inside and (self.check is None or self.check(match)):
                    found.append(CandidatePartition(SubGraph(graph, inside), spec.backend))
        return distinct(found)
