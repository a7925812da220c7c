"""Relax functions as dataflow graphs, and synthetic graphs."""

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

from collage.errors import FrontendError
from collage.graph import DataflowGraph, IndexSet, NodeKind, OpKind, SubGraph, ValueKind
from collage.graph.from_relax import read_graph


def module_of(build, *shapes: tuple[int, ...]) -> tvm.IRModule:  # type: ignore[no-untyped-def]
    """`main` with float32 parameters of these shapes; `build(builder, *parameters)` returns its result."""
    builder = relax.BlockBuilder()
    parameters = [relax.Var(f"x{i}", R.Tensor(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", parameters):
        with builder.dataflow():
            output = builder.emit_output(build(builder, *parameters))
        builder.emit_func_output(output)
    return builder.get()


def test_nodes_edges_and_order() -> None:
    weight = relax.const(np.ones(4, "float32"))

    def build(builder, x):  # type: ignore[no-untyped-def]
        first = builder.emit(op.add(x, weight))
        return op.multiply(builder.emit(op.nn.relu(first)), builder.emit(op.add(first, weight)))

    graph = read_graph(module_of(build, (2, 4)))
    assert [n.op for n in graph.nodes] == [
        "input",
        "constant",
        "relax.add",
        "relax.nn.relu",
        "relax.add",
        "relax.multiply",
    ]
    assert graph.nodes[2].inputs == (0, 1) and graph.nodes[2].outputs == (3, 4)
    assert graph.nodes[1].outputs == (2, 4), "one node per distinct constant"
    assert (graph.inputs, graph.constants, graph.coverable) == (IndexSet([0]), IndexSet([1]), IndexSet([2, 3, 4, 5]))
    assert graph.escaping == IndexSet([5])
    assert graph.nodes[3].var is not None and isinstance(graph.nodes[3].expr, relax.Call)
    assert SubGraph(graph, IndexSet([2, 3])).label == "add+relu"


def test_tuples_projections_and_shapes() -> None:
    def build(builder, x):  # type: ignore[no-untyped-def]
        parts = builder.emit(op.split(x, 2, 1))
        left, right = builder.emit(relax.TupleGetItem(parts, 0)), builder.emit(relax.TupleGetItem(parts, 1))
        joined = builder.emit(op.concat([right, left], 1))
        return builder.emit(op.reshape(joined, (8,)))

    graph = read_graph(module_of(build, (2, 4)))
    assert [n.kind for n in graph.nodes] == [
        NodeKind.INPUT,
        NodeKind.CALL,
        NodeKind.TUPLE_GET,
        NodeKind.TUPLE_GET,
        NodeKind.CALL,
        NodeKind.CALL,
    ]
    assert graph.nodes[4].inputs == (3, 2), "an inline tuple is part of its call; its fields are read in order"
    assert graph.nodes[5].inputs == (4,), "a shape is no node"
    assert graph.nodes[1].value is ValueKind.TUPLE and graph.nodes[2].value is ValueKind.TENSOR


def test_several_results_escape() -> None:
    def build(builder, x):  # type: ignore[no-untyped-def]
        first = builder.emit(op.nn.relu(x))
        return relax.Tuple([first, builder.emit(op.abs(first))])

    graph = read_graph(module_of(build, (2, 4)))
    assert [(n.op, n.escapes) for n in graph.nodes] == [
        ("input", False),
        ("relax.nn.relu", False),
        ("relax.abs", False),
        ("tuple", True),
    ]


def test_a_missing_function_and_a_wrong_form_are_clear_errors() -> None:
    mod = module_of(lambda builder, x: builder.emit(op.nn.relu(x)), (2, 4))
    with pytest.raises(FrontendError, match=r"no Relax function 'other'.*main"):
        read_graph(mod, "other")
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((2, 4), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.nn.relu(x)))
    with pytest.raises(FrontendError, match="one dataflow block"):
        read_graph(builder.get())


def test_synthetic_graphs_are_checked() -> None:
    with pytest.raises(ValueError, match="topological"):
        DataflowGraph.from_edges([("relu", OpKind.ELEMENTWISE, [0])])
    with pytest.raises(ValueError, match="escaping"):
        DataflowGraph.from_edges([("x", NodeKind.INPUT, [])], escaping=[3])


def test_nodes_without_a_reader_escape_by_default() -> None:
    graph = DataflowGraph.from_edges(
        [("x", NodeKind.INPUT, []), ("relu", OpKind.ELEMENTWISE, [0]), ("abs", OpKind.ELEMENTWISE, [0])]
    )
    assert graph.escaping == IndexSet([1, 2])
