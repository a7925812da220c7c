"""RegistryPartitionRule: the patterns that are registered with TVM, as candidates (RFC 0062, phase 1: "The
`PartitionRule` will import all the BYOC patterns and predicates automatically").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.rules.base import PartitionRule, PartitionSpec
from collage.rules.pattern_rule import PatternMatch
from collage.rules.trees import library_rule


@dataclass(frozen=True)
class RegistryPartitionRule(PartitionRule):
    """`library_rule` over the patterns of `tvm.relax.backend` whose names begin with a prefix.

    The registry is read when candidates are asked for. Every match of every pattern is a candidate, whatever the
    order of registration; the pattern's name is the label of the `Composite` function. A pattern's check is asked; its
    getter of attributes is not.

    Attributes
    ----------
    prefix
        Such as "cublas." or "dnnl.".
    """

    prefix: str

    def all_candidates(self, graph: DataflowGraph, spec: PartitionSpec) -> list[CandidatePartition]:
        registered = get_patterns_with_prefix(self.prefix)
        patterns = ((str(each.name), each.pattern, _check_of(each)) for each in registered)
        return library_rule(patterns).all_candidates(graph, spec)


@dataclass(frozen=True)
class MatchContext:
    """What a registered check is given: `tvm.relax.transform.PatternCheckContext`, which only TVM can make.

    Attributes
    ----------
    matched_expr
        The value that the pattern matches.
    annotated_expr
        Annotation -> the value that its pattern matches.
    matched_bindings
        Variable -> value, of the nodes inside.
    var_usages
        Variable -> the variables whose values read it; of one that leaves the block, one that stands for the result.
    value_to_bound_var
        Value -> variable.
    """

    matched_expr: Any
    annotated_expr: Mapping[str, Any]
    matched_bindings: Mapping[Any, Any]
    var_usages: Mapping[Any, Sequence[Any]]
    value_to_bound_var: Mapping[Any, Any]

    @classmethod
    def of(cls, match: PatternMatch, annotations: Mapping[str, Any]) -> MatchContext:
        nodes = match.graph.nodes
        values = {node.var: node.expr for node in nodes if node.var is not None and node.expr is not None}
        bound = {pattern: values.get(expr, expr) for pattern, expr in match.bindings.items()}
        result = relax.Var("result")
        return cls(
            matched_expr=match.root.expr,
            annotated_expr={str(name): bound[p] for name, p in annotations.items() if p in bound},
            matched_bindings={nodes[i].var: nodes[i].expr for i in match.inside},
            var_usages={
                node.var: [*(nodes[reader].var for reader in node.outputs), *([result] if node.escapes else [])]
                for node in nodes
                if node.var is not None
            },
            value_to_bound_var={expr: var for var, expr in values.items()},
        )


def _check_of(registered: Any) -> Callable[[PatternMatch], bool] | None:
    check, annotations = registered.check, dict(registered.annotation_patterns.items())
    if check is None:
        return None
    return lambda match: bool(check(MatchContext.of(match, annotations)))
