"""Levels: which products and sums of a region are in eight bits, as candidates of graph backends.

A region of n products has 2^n choices. What a product costs in eight bits is an error, what it gains is time, about as
much as it has multiply-adds. For any exchange rate between the two, those products are in eight bits whose error for
each multiply-add is below it: the best choices are nested. So the products of the whole network are put in that order,
and a level is a beginning of it, as long as its error allows. Sums gain by what need not be written and read in
float32, where what they add is in eight bits anyway.

Errors of levels are numbers of one grid, so that other budgets, and other turns of the dial, meet the same candidates.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache

from collage.accuracy.errors import ErrorTable
from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.kinds import OpKind

#: Errors of the levels that are offered, relative to the one granted.
_STEPS = (0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.15)
#: Ratio of neighbouring errors on the grid.
_GRID = 1.1
#: So many multiply-adds take as long as to write and read a number of float32 instead of a byte.
_ADDS_PER_NUMBER = 64


def int8_levels(
    graph: DataflowGraph,
    covers: Mapping[str, Iterable[CandidatePartition]],
    backends: Mapping[str, Backend],
    errors: ErrorTable,
    widest: float,
) -> list[CandidatePartition]:
    """Candidates with products and sums in eight bits, for the large partitions of each backend that can have some.

    Parameters
    ----------
    covers
        Backend -> the cover of few large partitions that it has alone.
    errors
        What each product and sum costs.
    widest
        The error granted.
    """
    found: dict[CandidatePartition, None] = {}
    for name, cover in covers.items():
        backend = backends[name]
        own = [c for c in cover if c.backend == name]
        inside = [i for c in own for i in c.sub_graph.inside]
        able = backend.int8_nodes(graph, IndexSet(inside))
        able = IndexSet(i for i in able if math.isfinite(errors.of(i, INT8)))
        base = sum(errors.of(i, backend.precision) for i in inside)
        for chosen in _levels(graph, able, backend.precision, base, errors, widest):
            found |= dict.fromkeys(labelled for c in own if (labelled := with_int8(c, chosen)).composites)
    return list(found)


def with_int8(candidate: CandidatePartition, products: IndexSet) -> CandidatePartition:
    """A partition of a graph backend with those of its nodes in eight bits that are named."""
    inside = candidate.sub_graph.inside & products
    return replace(candidate, composites=((INT8, inside),) if inside else ())


def _levels(
    graph: DataflowGraph, able: IndexSet, precision: str, base: float, errors: ErrorTable, widest: float
) -> list[IndexSet]:
    def added(index: int) -> float:
        return errors.of(index, INT8) - errors.of(index, precision)

    order = sorted(able, key=lambda i: (added(i) / _gained(graph.nodes[i]), i))

    def chosen(count: int) -> IndexSet:
        return with_sums_between(graph, IndexSet(order[:count]))

    @cache
    def squared(count: int) -> float:
        return base + sum(map(added, chosen(count)))

    limits = [_on_grid(step * widest) ** 2 for step in _STEPS]
    counts = dict.fromkeys(bisect_right(range(1, len(order) + 1), limit, key=squared) for limit in limits)
    return list(dict.fromkeys(level for count in counts if (level := chosen(count))))


def _on_grid(error: float) -> float:
    """The largest error on the grid that is not above one."""
    return _GRID ** math.floor(math.log(error, _GRID)) if error > 0 else 0.0


def with_sums_between(graph: DataflowGraph, chosen: IndexSet) -> IndexSet:
    """Without those sums that add something which is neither made in eight bits nor quantised for a product anyway."""
    kept: set[int] = set()
    for index in chosen:
        node = graph.nodes[index]
        if node.op_kind is OpKind.ANCHOR or all(_is_in(graph, source, kept, chosen) for source in node.inputs):
            kept.add(index)
    return IndexSet(kept)


def _is_in(graph: DataflowGraph, index: int, made: Collection[int], chosen: IndexSet) -> bool:
    """Whether a value comes from what is made in eight bits, or is read by products that are in eight bits."""
    node = graph.nodes[index]
    readers = [reader for reader in node.outputs if graph.nodes[reader].op_kind is OpKind.ANCHOR]
    if readers and not node.escapes and all(reader in chosen for reader in node.outputs):
        return True
    while index not in made and len(graph.data_inputs[index]) == 1:
        (index,) = graph.data_inputs[index]
    return index in made


def _gained(node: DataflowNode) -> float:
    """What eight bits save, in multiply-adds."""
    outputs = math.prod(int(extent) for extent in node.var.ty.shape.values)
    return multiply_adds(node) if node.op_kind is OpKind.ANCHOR else outputs * _ADDS_PER_NUMBER


def multiply_adds(node: DataflowNode) -> float:
    """Of a convolution or a product of matrices: its outputs times what each of them sums up."""
    outputs = math.prod(int(extent) for extent in node.var.ty.shape.values)
    data, weights = (operand.ty.shape.values for operand in node.expr.args[:2])
    if node.op == "relax.matmul":
        return outputs * int(data[-1])
    return outputs * math.prod(map(int, weights)) / int(weights[0])
