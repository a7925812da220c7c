"""Tuples: bound once and read twice, out of `split`, and producers that are joined through one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import collage
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import build
from collage.compile.rewrite import apply, extract
from collage.graph import DataflowGraph
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun
from collage.measure.workloads import WorkloadFactory
from collage.rules import (
    NATIVE_KIND_TABLE,
    CombinePartitionRule,
    CombineTupleArguments,
    OpPredicatePartitionRule,
    PrimitivePartitionRule,
    gather_candidates,
    native_rule,
)
from collage.rules.base import PartitionSpec
from tests.collage.rules.networks import CONST, GET, IN, TUPLE, E, I, found

Emit = Callable[[Any], Any]
BACKENDS = {"tvm": TVMBackend()}


def both_concatenated(emit: Emit, t: Any, u: Any) -> Any:
    return relax.Tuple([emit(op.concat(t, 0)), emit(op.concat(u, 1))])


def bound(emit: Emit, x: Any) -> Any:
    pair = emit(relax.Tuple([emit(op.nn.relu(x)), emit(op.abs(x))]))
    return both_concatenated(emit, pair, pair)


def equal(emit: Emit, x: Any) -> Any:
    fields = [emit(op.nn.relu(x)), emit(op.abs(x))]
    return both_concatenated(emit, emit(relax.Tuple(fields)), emit(relax.Tuple(fields)))


def inline(emit: Emit, x: Any) -> Any:
    fields = [emit(op.nn.relu(x)), emit(op.abs(x))]
    return both_concatenated(emit, relax.Tuple(fields), relax.Tuple(fields))


def nested(emit: Emit, x: Any) -> Any:
    pair = emit(relax.Tuple([emit(op.nn.relu(x)), emit(op.abs(x))]))
    outer = emit(relax.Tuple([pair, x]))
    inner = emit(relax.TupleGetItem(outer, 0))
    return relax.Tuple([emit(op.concat(inner, 0)), emit(op.concat(pair, 1)), emit(relax.TupleGetItem(outer, 1))])


def split_and_whole(emit: Emit, x: Any) -> Any:
    halves = emit(op.split(x, 2, 1))
    first = emit(op.nn.relu(emit(relax.TupleGetItem(halves, 0))))
    return relax.Tuple([first, emit(op.concat(halves, 0))])


NETWORKS = (bound, equal, inline, split_and_whole)


def network(body: Callable[[Emit, Any], Any]) -> Any:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 6), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, x))
        builder.emit_func_output(result)
    return builder.get()


def candidates_of(graph: DataflowGraph) -> CandidateSet:
    return gather_candidates(graph, [PartitionSpec(b.rule(), name) for name, b in BACKENDS.items()])


def one_by_one(candidates: CandidateSet) -> list[CandidatePartition]:
    """Every node alone, on TVM where it can be."""
    alone: dict[int, CandidatePartition] = {}
    for candidate in sorted(candidates, key=lambda c: c.backend == HOST):
        if len(candidate.sub_graph.inside) == 1:
            alone.setdefault(candidate.sub_graph.inside.first, candidate)
    return [alone[index] for index in sorted(alone)]


@pytest.mark.parametrize(
    ("body", "canonical"), [(nested, True), *((body, canonical) for body in NETWORKS for canonical in (True, False))]
)
def test_native_kernels_read_tuples_that_others_read_too(body: Callable[[Emit, Any], Any], canonical: bool) -> None:
    module = network(body)
    module = collage.load(module) if canonical else relax.transform.CanonicalizeBindings()(module)
    graph = read_graph(module)
    candidates = candidates_of(graph)
    factory = WorkloadFactory(module, graph, BACKENDS, threads=1)
    for candidate in (c for c in candidates if c.backend != HOST):
        extracted = extract(module, candidate.sub_graph)
        assert factory.of(candidate).structure == structure_hash(describe_module(extracted))
    compiled = build(apply(module, graph, one_by_one(candidates), BACKENDS), BACKENDS.values(), 1)
    run = ReferenceRun(module, graph, 1)
    for given, expected in zip(compiled(*run.inputs), run.outputs, strict=True):
        np.testing.assert_array_equal(np.asarray(given), expected)


@pytest.mark.parametrize("body", [bound, equal], ids=lambda body: body.__name__)
def test_a_bound_tuple_is_inlined_for_each_reader(body: Callable[[Emit, Any], Any]) -> None:
    canonical = [describe_module(collage.load(network(which))) for which in (body, inline)]
    assert canonical[0] == canonical[1]


def test_what_comes_out_of_split_is_read_whole_by_a_kernel() -> None:
    graph = read_graph(collage.load(network(split_and_whole)))
    concat = next(node.index for node in graph.nodes if node.op == "relax.concat")
    kernels = [tuple(c.sub_graph.inside) for c in candidates_of(graph) if c.backend == "tvm"]
    assert (concat,) in kernels
    assert all(graph.nodes[nodes[0]].op != "tuple_get" for nodes in kernels), "a tuple is taken apart on the host"


def tuple_of_two() -> DataflowGraph:
    return DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("abs", E, [0]), ("tuple", TUPLE, [1, 2]), ("concat", I, [3])]
    )


def test_all_producers_of_a_tuple_are_joined_though_each_reads_from_outside() -> None:
    assert (1, 2, 3, 4) in found(native_rule(), tuple_of_two())
    everything = OpPredicatePartitionRule(lambda node: True)
    combined = CombinePartitionRule(everything, [*NATIVE_KIND_TABLE, CombineTupleArguments()])
    assert (1, 2, 3, 4) in found(PrimitivePartitionRule(combined), tuple_of_two())


def test_a_producer_of_a_tuple_and_of_another_producer_is_joined() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("relu", E, [0]), ("abs", E, [1]), ("tuple", TUPLE, [1, 2]), ("concat", I, [3])]
    )
    assert (1, 2, 3, 4) in found(native_rule(), graph)


def test_what_is_only_returned_together_is_not_computed_together() -> None:
    graph = DataflowGraph.from_edges([("x", IN, []), ("relu", E, [0]), ("abs", E, [0]), ("tuple", TUPLE, [1, 2])])
    assert found(native_rule(), graph) == [(1,), (2,)]


def test_a_kernel_gives_no_tensor_twice() -> None:
    def twice(emit: Emit, x: Any) -> Any:
        positive = emit(op.nn.relu(x))
        return relax.Tuple([positive, positive])

    graph = read_graph(collage.load(network(twice)))
    assert [len(c.sub_graph.inside) for c in candidates_of(graph) if c.backend == "tvm"] == [1]


def test_constants_in_a_tuple_are_given_and_never_inside() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("w", CONST, []), ("relu", E, [0]), ("tuple", TUPLE, [1, 2]), ("concat", I, [3])]
    )
    assert all(1 not in nodes for nodes in found(native_rule(), graph))
    assert (2, 3, 4) in found(native_rule(), graph)


def test_a_projection_of_a_tuple_from_outside_is_not_in_a_kernel() -> None:
    graph = DataflowGraph.from_edges(
        [("x", IN, []), ("split", I, [0]), ("get", GET, [1]), ("get", GET, [1]), ("concat", I, [1]), ("relu", E, [2])]
    )
    kernels = found(native_rule(), graph)
    assert (4,) in kernels and (5,) in kernels
    assert not any(2 in nodes and 1 not in nodes for nodes in kernels)
