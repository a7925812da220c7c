"""A library called inside a native partition: its steps, their numbers, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from collage.backends.base import Availability, Backend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import compile_partitioned, with_called
from collage.compile.rewrite import apply, steps_of
from collage.errors import CodegenError, PlanError, PluginError
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.rules import PartitionRule
from collage.rules.base import PartitionSpec
from collage.runtime import engines

X = np.random.default_rng(0).standard_normal((4, 6), dtype=np.float32)
W = np.random.default_rng(1).standard_normal((6, 6), dtype=np.float32)
B = np.random.default_rng(2).standard_normal(6, dtype=np.float32)
Emit = Callable[[Any], Any]


def network(body: Callable[[Emit, Any], Any]) -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def chain(emit: Emit, x: Any) -> Any:
    """exp(relu(|x|) W + b): abs, relu, matmul, add, exp."""
    product = emit(op.matmul(emit(op.nn.relu(emit(op.abs(x)))), relax.const(W)))
    return emit(op.exp(emit(op.add(product, relax.const(B)))))


def two_products(emit: Emit, x: Any) -> Any:
    """A value with three readers between two products: relu, matmul, exp, add, matmul, add."""
    positive = emit(op.nn.relu(x))
    first = emit(op.matmul(positive, relax.const(W)))
    total = emit(op.add(first, emit(op.exp(positive))))
    return emit(op.add(emit(op.matmul(total, relax.const(W))), positive))


def labelled(graph: Any, backend: str, *groups: tuple[str, tuple[int, ...]]) -> CandidatePartition:
    """All of the network, with labels on the nodes at some positions."""
    order = list(graph.coverable)
    composites = tuple((label, IndexSet(order[p] for p in positions)) for label, positions in groups)
    return CandidatePartition(SubGraph(graph, graph.coverable), backend, composites)


def steps(body: Callable[[Emit, Any], Any], *groups: tuple[str, tuple[int, ...]]) -> list[tuple[str, str, int]]:
    """Of each step: its symbol, whose it is, and how many operators it has."""
    graph = read_graph(network(body))
    found = steps_of(graph, labelled(graph, "tvm", *groups), TVMBackend(libraries=["onednn"]), "part")
    return [(step.symbol, step.backend.name, len(step.function.body.blocks[0].bindings)) for step in found]


def test_kernels_are_as_few_as_can_be_and_called_in_order() -> None:
    found = steps(chain, ("onednn:onednn.matmul_bias", (2, 3)))
    assert [(symbol, backend) for symbol, backend, _ in found] == [
        ("part", "tvm"),
        ("within_part_1", "onednn"),
        ("within_part_2", "tvm"),
    ]
    assert [count for _, backend, count in found if backend == "tvm"] == [2, 1]  # abs and relu; exp


def test_what_would_give_several_results_is_a_kernel_for_each_operator() -> None:
    """relu and exp are read on both sides of the first product."""
    found = steps(two_products, ("onednn:onednn.matmul", (1,)), ("onednn:onednn.matmul", (4,)))
    assert [backend for _, backend, _ in found].count("onednn") == 2
    assert [count for _, backend, count in found if backend == "tvm"] == [1] * 4


@pytest.mark.parametrize(
    ("body", "groups", "expected"),
    [
        (chain, [("onednn:onednn.matmul_bias", (2, 3))], np.exp(np.abs(X) @ W + B)),
        (chain, [("onednn.matmul", (2,))], np.exp(np.abs(X) @ W + B)),
        (
            two_products,
            [("onednn:onednn.matmul", (1,)), ("onednn:onednn.matmul", (4,))],
            (np.maximum(X, 0) @ W + np.exp(np.maximum(X, 0))) @ W + np.maximum(X, 0),
        ),
    ],
)
def test_numbers_are_right(body: Any, groups: Any, expected: np.ndarray) -> None:
    module, backend = network(body), TVMBackend(libraries=["onednn"])
    graph = read_graph(module)
    partitioned = apply(module, graph, [labelled(graph, "tvm", *groups)], {"tvm": backend})
    engines.register()
    executable = compile_partitioned(partitioned, [backend], threads=1)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_equal_kernels_are_shared_but_not_between_first_steps_and_others() -> None:
    """Each partition is known in a run by its first step."""

    def body(emit: Emit, x: Any) -> Any:
        once = emit(op.exp(emit(op.matmul(x, relax.const(W)))))
        return emit(op.exp(emit(op.exp(once))))

    module, backend = network(body), TVMBackend(libraries=["onednn"])
    graph = read_graph(module)
    product, *rest = list(graph.coverable)
    first = CandidatePartition(
        SubGraph(graph, IndexSet([product, rest[0]])), "tvm", (("onednn:onednn.matmul", IndexSet([product])),)
    )
    others = [CandidatePartition(SubGraph(graph, IndexSet([node])), "tvm") for node in rest[1:]]
    partitioned = apply(module, graph, [first, *others], {"tvm": backend})
    called = [b.value.op.name_hint for b in partitioned["main"].body.blocks[0].bindings]
    assert called == ["collage_tvm_0", "within_collage_tvm_0_1", "collage_tvm_1", "collage_tvm_1"]


def test_a_label_of_no_library_is_refused() -> None:
    graph = read_graph(network(chain))
    with pytest.raises(CodegenError, match=r"calls no library for acme:acme\.product; it was made with: onednn"):
        steps_of(graph, labelled(graph, "tvm", ("acme:acme.product", (2,))), TVMBackend(libraries=["onednn"]), "part")


def test_patterns_that_need_each_other_are_refused() -> None:
    def body(emit: Emit, x: Any) -> Any:
        one, other = emit(op.nn.relu(x)), emit(op.abs(x))
        return emit(op.subtract(emit(op.add(one, other)), emit(op.multiply(other, one))))

    graph = read_graph(network(body))
    candidate = labelled(graph, "tvm", ("onednn:a", (0, 2)), ("onednn:b", (1, 3)))
    with pytest.raises(PlanError, match="need each other"):
        steps_of(graph, candidate, TVMBackend(libraries=["onednn"]), "part")


def test_libraries_of_another_kind_are_refused() -> None:
    with pytest.raises(PluginError, match="calls libraries of cpu in full precision; onnxruntime is a graph backend"):
        TVMBackend(libraries=["onnxruntime"])
    with pytest.raises(PluginError, match="onednn-bf16 is a library backend of cpu, in bf16"):
        TVMBackend(libraries=["onednn-bf16"])


def test_the_native_rule_adds_calls_of_libraries_to_its_kernels() -> None:
    graph = read_graph(network(chain))

    def found(backend: Backend) -> set[CandidatePartition]:
        return set(PartitionSpec(backend.partition_rule, backend.name).candidates(graph))

    plain, calling = found(TVMBackend()), found(TVMBackend(libraries=["onednn"]))
    assert plain < calling
    order = list(graph.coverable)
    wanted = CandidatePartition(
        SubGraph(graph, IndexSet(order[2:])), "tvm", (("onednn:onednn.matmul_bias", IndexSet(order[2:4])),)
    )
    assert wanted in calling


def test_what_the_libraries_are_is_part_of_the_configuration_and_of_the_availability() -> None:
    class Missing(Backend):
        name, style = "missing", "library"

        def availability(self) -> Availability:
            return Availability(False, "it is not installed")

        def version(self) -> str:
            return "1"

        def rule(self) -> PartitionRule:
            raise NotImplementedError

    assert "libraries" not in TVMBackend().configuration()
    assert set(TVMBackend(libraries=["onednn"]).configuration()["libraries"]) == {"onednn"}
    state = TVMBackend(libraries=[Missing()]).availability()
    assert not state.available and "missing: it is not installed" in state.reason


def test_two_libraries_of_one_name_that_build_different_things_are_refused() -> None:
    class Library(Backend):
        name, style = "library", "library"

        def __init__(self, size: int) -> None:
            self.size = size

        def availability(self) -> Availability:
            return Availability(True)

        def version(self) -> str:
            return "1"

        def rule(self) -> PartitionRule:
            raise NotImplementedError

        def configuration(self) -> dict[str, Any]:
            return {"size": self.size}

    assert set(with_called([TVMBackend(libraries=[Library(1)]), Library(1)])) == {"tvm", "library"}
    with pytest.raises(CodegenError, match="two backends called library"):
        with_called([TVMBackend(libraries=[Library(1)]), Library(2)])
