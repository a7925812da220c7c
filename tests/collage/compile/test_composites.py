"""Labelled patterns in partitions: `Composite` functions of one result and of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

from collage.backends.base import Availability, Backend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.rewrite import apply
from collage.errors import CodegenError, PlanError
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph, SubGraphConfig
from collage.rules import PartitionRule, library_rule
from collage.rules.base import PartitionSpec

X = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)


class Library(Backend):
    """Takes abs of a relu, which gives both."""

    name = "library"
    style = "library"

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"

    def rule(self) -> PartitionRule:
        pattern = is_op("relax.abs")(is_op("relax.nn.relu")(wildcard()))
        return library_rule([("library.relu_abs", pattern, None)], SubGraphConfig(max_exits=2))


def network(body: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def both(emit: Callable[[Any], Any], x: Any) -> Any:
    positive = emit(op.nn.relu(x))
    return emit(op.add(emit(op.abs(positive)), positive))


def host(graph: Any, *nodes: int) -> CandidatePartition:
    return CandidatePartition(SubGraph(graph, IndexSet(nodes)), "host")


def run(module: Any) -> np.ndarray:
    """What a partitioned module computes when its functions are inlined."""
    plain = tvm.IRModule({gv: _without_attributes(f) for gv, f in module.functions_items()})
    built = tvm.compile(relax.transform.LambdaLift()(plain), target="llvm")
    result: np.ndarray = relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()
    return result


def _without_attributes(function: Any) -> Any:
    return function.without_attr("Codegen") if function.attrs and "Codegen" in function.attrs else function


def test_a_labelled_pattern_with_two_results_returns_a_tuple() -> None:
    module = network(both)
    graph = read_graph(module)
    (found,) = PartitionSpec(Library().rule(), "library").candidates(graph)
    assert tuple(found.sub_graph.inside) == tuple(found.sub_graph.exits) == (1, 2)
    partitioned = apply(module, graph, [found, host(graph, 3)], {"library": Library()})
    (function,) = (f for gv, f in partitioned.functions_items() if gv.name_hint != "main")
    (inner,) = (b.value for b in function.body.blocks[0].bindings if isinstance(b.value, relax.Function))
    assert inner.attrs["Composite"] == "library.relu_abs" and isinstance(inner.ret_ty, relax.TupleType)
    np.testing.assert_array_equal(run(partitioned), 2 * np.maximum(X, 0))


def chosen(graph: Any, *composites: Sequence[int]) -> CandidatePartition:
    labelled = tuple((f"library.{number}", IndexSet(nodes)) for number, nodes in enumerate(composites))
    inside = IndexSet(index for nodes in composites for index in nodes)
    return CandidatePartition(SubGraph(graph, inside), "library", labelled)


def test_patterns_are_called_in_the_order_of_what_they_read() -> None:
    """The second pattern reads the first result of the first, whose other node comes later."""

    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        first = emit(op.nn.relu(x))
        second = emit(op.abs(first))
        third = emit(op.negative(x))
        return emit(op.add(emit(op.multiply(second, third)), third))

    module = network(body)
    graph = read_graph(module)
    partitioned = apply(module, graph, [chosen(graph, (1, 3), (2, 4)), host(graph, 5)], {"library": Library()})
    np.testing.assert_allclose(run(partitioned), np.maximum(X, 0) * -X - X, rtol=1e-6)


def test_patterns_that_need_each_other_are_refused() -> None:
    def body(emit: Callable[[Any], Any], x: Any) -> Any:
        one, other = emit(op.nn.relu(x)), emit(op.abs(x))
        return relax.Tuple([emit(op.add(one, other)), emit(op.multiply(other, one))])

    module = network(body)
    graph = read_graph(module)
    with pytest.raises(PlanError, match="need each other"):
        apply(module, graph, [chosen(graph, (1, 3), (2, 4)), host(graph, 5)], {"library": Library()})


def test_a_label_in_a_native_kernel_is_refused_and_not_dropped() -> None:
    module = network(both)
    graph = read_graph(module)
    inside = IndexSet((1, 2, 3))
    labelled = CandidatePartition(SubGraph(graph, inside), "tvm", (("library.relu", IndexSet((1,))),))
    with pytest.raises(CodegenError, match=r"library\.relu"):
        apply(module, graph, [labelled], {"tvm": TVMBackend()})
