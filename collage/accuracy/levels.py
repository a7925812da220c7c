"""Levels: which products of a region are in eight bits, as candidates of graph backends.

A region of n products has 2^n choices. What a product costs in eight bits is an error, what it gains is time, about as
much as it has multiply-adds. For any exchange rate between the two, those products are in eight bits whose error for
each multiply-add is below it: the best choices are nested. So the products of the whole network are put in that order,
and a level is a beginning of it, as long as its error allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collage.accuracy.errors import ErrorTable
from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet

#: Errors of the levels that are offered, relative to the one granted.
_STEPS = (0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.15)


def int8_levels(
    graph: DataflowGraph,
    covers: Mapping[str, Iterable[CandidatePartition]],
    backends: Mapping[str, Backend],
    errors: ErrorTable,
    widest: float,
) -> list[CandidatePartition]:
    """Candidates with products in eight bits, for the large partitions of each backend that can have some.

    Parameters
    ----------
    covers
        Backend -> the cover of few large partitions that it has alone.
    errors
        What each product costs.
    widest
        The error granted.
    """
    found: dict[CandidatePartition, None] = {}
    for name, cover in covers.items():
        backend = backends[name]
        own = [c for c in cover if c.backend == name]
        inside = [i for c in own for i in c.sub_graph.inside]
        able = backend.int8_nodes(graph, IndexSet(inside))
        products = [i for i in able if math.isfinite(errors.of(i, INT8))]
        base = sum(errors.of(i, backend.precision) for i in inside)
        for chosen in _levels(graph, products, backend.precision, base, errors, widest):
            found |= dict.fromkeys(labelled for c in own if (labelled := with_int8(c, chosen)).composites)
    return list(found)


def with_int8(candidate: CandidatePartition, products: IndexSet) -> CandidatePartition:
    """A partition of a graph backend with those of its products in eight bits that are named."""
    inside = candidate.sub_graph.inside & products
    return replace(candidate, composites=((INT8, inside),) if inside else ())


def _levels(
    graph: DataflowGraph, products: Sequence[int], precision: str, base: float, errors: ErrorTable, widest: float
) -> list[IndexSet]:
    def added(index: int) -> float:
        return errors.of(index, INT8) - errors.of(index, precision)

    order = sorted(products, key=lambda i: (added(i) / multiply_adds(graph.nodes[i]), i))
    levels, total = [], base
    beginnings = []
    for index in order:
        total += added(index)
        beginnings.append(total)
    for step in _STEPS:
        count = sum(1 for squared in beginnings if squared <= (step * widest) ** 2)
        if count:
            levels.append(IndexSet(order[:count]))
    return list(dict.fromkeys(levels))


def multiply_adds(node: DataflowNode) -> float:
    """Of a convolution or a product with constant weights: its outputs times what each of them sums up."""
    weights = node.expr.args[1].ty.shape.values
    channels = weights[-1] if node.op == "relax.matmul" else weights[0]
    outputs = math.prod(int(extent) for extent in node.var.ty.shape.values)
    return outputs * math.prod(map(int, weights)) / int(channels)
