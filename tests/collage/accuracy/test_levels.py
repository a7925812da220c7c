"""Levels of eight bits: nested, the cheapest error for each multiply-add first, within the errors asked for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tvm
from tvm import relax

from collage import plugins
from collage.accuracy.levels import int8_levels, multiply_adds, with_int8, with_sums_between
from collage.accuracy.table import ErrorTable
from collage.frontend import load
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph

_WIDTHS = (8, 32, 16, 64)


@pytest.fixture(scope="module")
def graph() -> DataflowGraph:
    """A chain of products of several sizes."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for before, after in zip(_WIDTHS, (*_WIDTHS[1:], 8), strict=True):
                weights = relax.const(np.ones((before, after), np.float32))
                value = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(value, weights))))
            out = builder.emit_output(relax.op.tanh(value))
        builder.emit_func_output(out)
    module: tvm.IRModule = load(builder.get())
    return read_graph(module)


def _products(graph: DataflowGraph) -> list[int]:
    return [i for i in graph.coverable if graph.nodes[i].op == "relax.matmul"]


def _levels(graph: DataflowGraph, errors: dict[int, float], widest: float) -> list[IndexSet]:
    backends = {"openvino": plugins.load("backends", "openvino")}
    whole = CandidatePartition(SubGraph(graph, graph.coverable), "openvino")
    table = ErrorTable({"int8": errors})
    found = int8_levels(graph, {"openvino": [whole]}, backends, table, widest)
    return [nodes for candidate in found for _, nodes in candidate.composites]


def test_multiply_adds_are_outputs_times_what_each_sums_up(graph: DataflowGraph) -> None:
    assert [multiply_adds(graph.nodes[i]) for i in _products(graph)] == [
        4 * after * before for before, after in zip(_WIDTHS, (*_WIDTHS[1:], 8), strict=True)
    ]


def test_levels_are_nested_and_within_the_errors_asked_for(graph: DataflowGraph) -> None:
    errors = {index: (0.004 * (1 + n)) ** 2 for n, index in enumerate(_products(graph))}
    levels = _levels(graph, errors, widest=0.01)
    assert len(levels) > 1
    for smaller, larger in itertools.pairwise(levels):
        assert smaller <= larger
    assert all(math.sqrt(sum(errors[i] for i in level)) <= 1.15 * 0.01 for level in levels)


def test_the_least_error_for_each_multiply_add_comes_first(graph: DataflowGraph) -> None:
    products = _products(graph)
    cheapest = max(products, key=lambda i: multiply_adds(graph.nodes[i]))
    first = _levels(graph, dict.fromkeys(products, 1e-6), widest=0.0011)[0]
    assert first == IndexSet([cheapest])


def test_what_cannot_be_measured_stays_in_float32(graph: DataflowGraph) -> None:
    products = _products(graph)
    errors = {index: math.inf if index == products[0] else 1e-9 for index in products}
    assert all(products[0] not in level for level in _levels(graph, errors, widest=1.0))


def test_a_sum_is_in_eight_bits_only_where_its_operands_are() -> None:
    """Made by products in eight bits, or quantised for all other readers."""
    weights = relax.const(np.ones((4, 4, 1, 1), np.float32))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            given = builder.emit(relax.op.nn.relu(x))
            made = builder.emit(relax.op.nn.conv2d(given, weights))
            total = builder.emit(relax.op.add(made, given))
            out = builder.emit_output(relax.op.nn.conv2d(total, weights))
        builder.emit_func_output(out)
    graph = read_graph(load(builder.get()))
    _, first, total, last = graph.coverable
    assert with_sums_between(graph, IndexSet([first, total, last])) == IndexSet([first, total, last])
    assert with_sums_between(graph, IndexSet([first, total])) == IndexSet([first, total])
    assert with_sums_between(graph, IndexSet([total, last])) == IndexSet([last])
    errors = ErrorTable({"int8": {first: 1e-6, total: 1e-12, last: 1.0}})
    whole = CandidatePartition(SubGraph(graph, graph.coverable), "openvino")
    levels = int8_levels(graph, {"openvino": [whole]}, {"openvino": plugins.load("backends", "openvino")}, errors, 0.01)
    assert [nodes for candidate in levels for _, nodes in candidate.composites] == [IndexSet([first, total])]


def test_near_budgets_have_the_same_levels(graph: DataflowGraph) -> None:
    errors = {index: (0.004 * (1 + n)) ** 2 for n, index in enumerate(_products(graph))}
    assert _levels(graph, errors, 0.0101) == _levels(graph, errors, 0.0102)


def test_no_error_granted_offers_nothing(graph: DataflowGraph) -> None:
    assert _levels(graph, dict.fromkeys(_products(graph), 1e-6), widest=0.0) == []


def test_labels_are_those_inside(graph: DataflowGraph) -> None:
    first, *others = _products(graph)
    part = CandidatePartition(SubGraph(graph, IndexSet([first])), "openvino")
    assert with_int8(part, IndexSet([first, *others])).composites == (("int8", IndexSet([first])),)
    assert with_int8(part, IndexSet(others)).composites == ()
