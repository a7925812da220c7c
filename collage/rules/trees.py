"""The tree of rules for each backend style: native, library and graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from collage.annotations.opaque import PREFIX
from collage.graph.dataflow_graph import DataflowNode
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.graph.sub_graph import SubGraph, SubGraphConfig
from collage.rules.base import OpCallByKindPartitionRule, OpPredicatePartitionRule, PartitionRule
from collage.rules.combinators import (
    CalledPartitionRule,
    CompositePartitionRule,
    FilterPartitionRule,
    OnlyValidPartitionRule,
    PrimitivePartitionRule,
    UnionPartitionRule,
)
from collage.rules.combine import CombinePartitionRule
from collage.rules.combiners import NATIVE_KIND_TABLE, CombineTupleArguments, CombineTupleProjections
from collage.rules.host import needs_backend
from collage.rules.pattern_rule import DFPatternPartitionRule, PatternMatch
from collage.rules.regions import RegionPartitionRule

#: What most library functions give: one tensor, and nothing of what led to it.
ONE_RESULT = SubGraphConfig(max_exits=1, allow_taps=False)


def native_rule(
    max_depth: int = 4, max_per_exit: int = 32, called: Mapping[str, PartitionRule] | None = None
) -> PartitionRule:
    """Native (TVM): OnlyValid(1 exit, no taps, depth) > Combine(kind table, tuples) > OpCallByKind; opaque calls alone.

    With libraries, also the same over Union(OpCallByKind, labelled patterns): kernels and library calls in one
    partition.

    Four kinds of sub-graphs are left out: those that the host runs at no cost, those that read a shape from outside,
    those that project from a tuple from outside, and those that return a tuple with a field that they do not compute,
    or with one field twice.

    Parameters
    ----------
    max_depth
        Operators on a path; 0 for no limit.
    max_per_exit
        Fused sub-graphs that end in one operator, smallest first; 0 for no limit.
    called
        Library -> rule of its labelled patterns.
    """
    config = SubGraphConfig(max_exits=1, allow_taps=False, max_depth=max_depth)
    begin = UnionPartitionRule(OpCallByKindPartitionRule(), OpPredicatePartitionRule(_is_tuple_node))
    combiners = (*NATIVE_KIND_TABLE, CombineTupleArguments(), CombineTupleProjections())

    def fused(begin: PartitionRule) -> PartitionRule:
        return OnlyValidPartitionRule(CombinePartitionRule(begin, combiners, max_depth, 1, max_per_exit), config)

    found = [fused(begin), OpPredicatePartitionRule(_is_opaque_call)]
    if called:  # apart from the others, so that they take no places of kernels that call nothing
        patterns = (CalledPartitionRule(library, rule) for library, rule in called.items())
        found.append(fused(UnionPartitionRule(begin, *patterns)))
    return FilterPartitionRule(UnionPartitionRule(*found), _is_native_work)


def library_rule(
    patterns: Iterable[tuple[str, Any, Callable[[PatternMatch], bool] | None]],
    config: SubGraphConfig = ONE_RESULT,
) -> PartitionRule:
    """Library (oneDNN, cuDNN, ...): Primitive > OnlyValid(1 exit, no taps) > Union > Composite(label) > DFPattern.

    Parameters
    ----------
    patterns
        (label, `tvm.relax.dpl` pattern, check of a `PatternMatch` or None).
    config
        Limits of a match. Where it allows several exits, a `Composite` function returns a tuple of them.
    """
    labelled = (
        CompositePartitionRule(label, DFPatternPartitionRule(pattern, check)) for label, pattern, check in patterns
    )
    return PrimitivePartitionRule(OnlyValidPartitionRule(UnionPartitionRule(*labelled), config))


def graph_rule(
    supports: Callable[[DataflowNode], bool], *, max_chain: int = 4, max_run: int = 3, nested_run: int = 2
) -> PartitionRule:
    """Graph (OpenVINO, ONNX Runtime, TensorRT): Primitive > OnlyValid > regions of supported operators.

    Parameters
    ----------
    supports
        Whether the backend takes a call. Tuples and projections go with the calls that they belong to.
    max_chain, max_run, nested_run
        As of `RegionPartitionRule`.
    """
    regions = RegionPartitionRule(supports, max_chain, max_run, nested_run)
    valid = OnlyValidPartitionRule(regions, SubGraphConfig())
    return PrimitivePartitionRule(FilterPartitionRule(valid, needs_backend))


def _is_tuple_node(node: DataflowNode) -> bool:
    return node.kind in (NodeKind.TUPLE, NodeKind.TUPLE_GET)


def _is_opaque_call(node: DataflowNode) -> bool:
    """Whether TVM may run a call, but fuses nothing with it."""
    return node.kind is NodeKind.CALL and node.op_kind > OpKind.ANCHOR and not node.op.startswith(PREFIX)


def _is_native_work(sub_graph: SubGraph) -> bool:
    nodes, boundary = sub_graph.graph.nodes, sub_graph.boundary
    tuples = [nodes[i] for i in boundary.exits if nodes[i].kind is NodeKind.TUPLE]
    return (
        needs_backend(sub_graph)
        and all(nodes[i].value is not ValueKind.OTHER for i in boundary.inputs)
        and not any(nodes[i].kind in (NodeKind.TUPLE, NodeKind.TUPLE_GET) for i in _readers_of_tuples(sub_graph))
        and all(i in sub_graph.inside for node in tuples for i in node.inputs)
        and all(node.expr is None or len(node.expr.fields) == len(node.inputs) for node in tuples)
    )


def _readers_of_tuples(sub_graph: SubGraph) -> Iterator[int]:
    """The nodes inside that read a tuple from outside."""
    nodes = sub_graph.graph.nodes
    tuples = [i for i in sub_graph.boundary.inputs if nodes[i].value is ValueKind.TUPLE]
    return (reader for i in tuples for reader in nodes[i].outputs if reader in sub_graph.inside)
