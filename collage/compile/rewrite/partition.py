"""The function of one partition, in the style of its backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collage.annotations.precision import INT8, INT8_POSITIONS, INT8_RANGES, Range
from collage.backends.base import Backend
from collage.compile.rewrite.body import Body, ordered_inputs, ordered_outputs
from collage.errors import CodegenError
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind

#: Operators whose legalisation makes a number of a scalar constant; FuseTIR takes no other constants inside a kernel.
_FOLD_SCALARS = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "floor_divide", "power", "mod", "floor_mod", "maximum", "minimum"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "full", "full_like", "astype"),
    )
)


@dataclass(frozen=True)
class Partition:
    """The function of a partition, or of one step of it.

    Attributes
    ----------
    function
        Relax function with the attributes of its style.
    inputs
        Nodes that its call reads, in parameter order; a tuple is as many parameters as it has fields.
    weights
        Constants that follow as parameters; of native kernels only.
    outputs
        Nodes that it gives.
    backend
        Whose it is.
    symbol
        Its name.
    """

    function: Any
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    backend: Backend
    symbol: str


def partition_function(graph: DataflowGraph, candidate: CandidatePartition, backend: Backend, symbol: str) -> Partition:
    """The function of one partition; external code generators name what they make `symbol`.

    Raises
    ------
    CodegenError
        A kernel has labelled patterns inside: `collage.compile.rewrite.steps` takes it apart.
    """
    sub_graph = candidate.sub_graph
    inputs, outputs = ordered_inputs(sub_graph), ordered_outputs(sub_graph)
    body = Body(graph)
    if backend.style == "native":
        if candidate.composites:
            labels = ", ".join(label for label, _ in candidate.composites)
            raise CodegenError(f"one kernel of {backend.name} cannot call a library: {labels} inside {candidate}")
        weights = _weights(graph, sub_graph.inside)
        params = body.parameters([*inputs, *weights])
        attrs: dict[str, Any] = {"Primitive": 1, "collage.backend": backend.name}
        function = body.function(params, sub_graph.inside, outputs).with_attrs(attrs)
        return Partition(function, tuple(inputs), tuple(weights), tuple(outputs), backend, symbol)
    params = body.parameters(inputs)
    attrs = {"Codegen": backend.name, "global_symbol": symbol, **_quantised(candidate, body.ranges(inputs))}
    if backend.style == "library":
        if backend.precision == INT8:
            attrs[INT8_RANGES] = [end for ends in body.ranges(inputs) for end in ends]
        function = body.composite_function(params, sub_graph.inside, outputs, candidate.composites)
    else:
        function = body.function(params, sub_graph.inside, outputs)
    return Partition(function.with_attrs(attrs), tuple(inputs), (), tuple(outputs), backend, symbol)


def _quantised(candidate: CandidatePartition, given: Sequence[Range]) -> dict[str, Any]:
    """Attributes that say which bindings are in eight bits, and what parameters (`given`) and bindings range over."""
    labelled = [index for label, nodes in candidate.composites if label == INT8 for index in nodes]
    if not labelled:
        return {}
    inside, nodes = candidate.sub_graph.inside, candidate.sub_graph.graph.nodes
    position = {index: i for i, index in enumerate(inside)}
    ends = [end for each in (*given, *(nodes[index].range for index in inside)) for end in each]
    return {INT8_POSITIONS: [position[index] for index in sorted(labelled)], INT8_RANGES: ends}


def _weights(graph: DataflowGraph, inside: IndexSet) -> list[int]:
    """Constants that a native partition takes as arguments: all but scalars of operators that fold them into the
    kernel.
    """
    seen: dict[int, None] = {}
    for index in inside:
        folds = graph.nodes[index].op in _FOLD_SCALARS
        for source in graph.nodes[index].inputs:
            node = graph.nodes[source]
            if node.kind is NodeKind.CONSTANT and not (folds and len(node.expr.value.shape) == 0):
                seen.setdefault(source)
    return list(seen)
