"""Extraction and rewriting: a partitioned network is the network, and equal sub-graphs look equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import collage
from benchmarks.workloads import build, random_inputs
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import compile_partitioned
from collage.compile.rewrite import apply, extract, with_outputs
from collage.cost.cost import Cost
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.measure.workloads import WorkloadFactory
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.search import CostTable, SearchProblem, execution_order
from searchers.dijkstra import DijkstraSearcher

BACKENDS = {"tvm": TVMBackend(), "onnxruntime": ONNXRuntimeBackend()}


@pytest.fixture(scope="module")
def network() -> tuple[Any, Any]:
    model = build("tiny_resnet")
    return model, collage.load(model)


def test_the_workload_of_a_candidate_is_described_as_its_extracted_module_is(network: tuple[Any, Any]) -> None:
    _, module = network
    graph = read_graph(module)
    factory = WorkloadFactory(module, graph, BACKENDS, threads=1)
    candidates = gather_candidates(graph, [PartitionSpec(b.rule(), name) for name, b in BACKENDS.items()])
    checked = [c for c in candidates if c.backend != HOST]
    assert len(checked) > 50
    for candidate in checked:
        workload = factory.of(candidate)
        described = describe_module(workload.module)
        assert described == workload.description
        assert structure_hash(described) == workload.structure


def test_equal_blocks_of_a_network_share_their_structure() -> None:
    module = collage.load(build("tiny_bert"))
    graph = read_graph(module)
    factory = WorkloadFactory(module, graph, BACKENDS, threads=1)
    softmax = [i for i in graph.coverable if graph.nodes[i].op == "relax.nn.softmax"]
    assert len(softmax) == 2
    workloads = {factory.of(CandidatePartition(SubGraph(graph, IndexSet([i])), "tvm")) for i in softmax}
    assert len(workloads) == 1


@pytest.mark.parametrize("preferred", ["tvm", "onnxruntime"])
def test_a_partitioned_network_computes_what_the_network_computes(network: tuple[Any, Any], preferred: str) -> None:
    model, module = network
    graph = read_graph(module)
    candidates = gather_candidates(graph, [PartitionSpec(b.rule(), name) for name, b in BACKENDS.items()])

    def estimate(asked: Any) -> list[Cost]:
        return [Cost(1.0 if c.backend == preferred else 7.0) for c in asked]

    found = DijkstraSearcher().search(SearchProblem(graph, candidates, CostTable(estimate)))
    partitioned = apply(module, graph, found.candidates, BACKENDS)
    executable = compile_partitioned(partitioned, list(BACKENDS.values()), threads=1)
    from collage.runtime import engines

    engines.register()
    inputs = list(random_inputs(model).values())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    ours = vm["main"](*(tvm.runtime.tensor(array) for array in inputs)).numpy()
    expected = ReferenceRun(module, graph, 1, inputs).outputs[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_native_partitions_that_differ_in_weights_only_share_one_kernel() -> None:
    module = collage.load(build("tiny_bert"))
    graph = read_graph(module)
    norms = [i for i in graph.coverable if graph.nodes[i].op == "relax.nn.layer_norm"]
    cover = [CandidatePartition(SubGraph(graph, IndexSet([i])), "tvm" if i in norms else HOST) for i in graph.coverable]
    partitioned = apply(module, graph, execution_order(graph, cover), BACKENDS)
    kernels = [gv for gv, f in partitioned.functions_items() if f.attrs and "Primitive" in f.attrs]
    assert len(norms) >= 4 and len(kernels) == 1


def test_a_sub_graph_with_two_exits_gives_both() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x))
            b = builder.emit(relax.op.negative(a))
            c = builder.emit(relax.op.abs(a))
            result = builder.emit_output(relax.op.add(b, c))
        builder.emit_func_output(result)
    module = builder.get()
    graph = read_graph(module)
    order = list(graph.coverable)
    extracted = extract(module, SubGraph(graph, IndexSet(order[:3])))
    assert isinstance(extracted["main"].ret_ty, relax.TupleType)
    assert len(extracted["main"].ret_ty.fields) == 2
    exposed = with_outputs(module, graph, order)
    assert len(exposed["main"].ret_ty.fields) == 4


def test_structure_depends_on_scalars_and_shapes_but_not_on_weights() -> None:
    def module(weight: float, scalar: float, extent: int) -> Any:
        x = relax.Var("x", relax.TensorType((2, extent), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                a = builder.emit(relax.op.add(x, relax.const(np.full((extent,), weight, "float32"))))
                result = builder.emit_output(relax.op.multiply(a, relax.const(scalar, "float32")))
            builder.emit_func_output(result)
        return builder.get()

    def structure(*arguments: Any) -> str:
        return structure_hash(describe_module(module(*arguments)))

    assert structure(1.0, 2.0, 3) == structure(5.0, 2.0, 3)
    assert len({structure(1.0, 2.0, 3), structure(1.0, 2.5, 3), structure(1.0, 2.0, 4)}) == 3


def test_scalars_that_an_operator_cannot_fold_become_arguments_of_its_kernel() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    mask = relax.Var("mask", relax.TensorType((2, 3), "bool"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, mask]):
        with builder.dataflow():
            a = builder.emit(relax.op.where(mask, x, relax.const(-1.0, "float32")))
            b = builder.emit(relax.op.take(a, relax.const(1, "int64"), axis=0, mode="wrap"))
            result = builder.emit_output(relax.op.multiply(b, relax.const(2.0, "float32")))
        builder.emit_func_output(result)
    module = builder.get()
    graph = read_graph(module)
    inputs = [np.arange(6, dtype="float32").reshape(2, 3), np.array([[True, False, True], [False, True, False]])]
    run = ReferenceRun(module, graph, 1, inputs)
    np.testing.assert_array_equal(run.outputs[0], np.array([-2.0, 8.0, -2.0], dtype="float32"))
