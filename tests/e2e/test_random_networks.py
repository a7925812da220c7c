"""Random networks, from Relax to numbers: covered, searched as brute force does, coalesced without a cycle, right."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

import collage
from collage.backends.base import Availability, Backend, Style
from collage.backends.tvm.backend import TVMBackend
from collage.compile.build import compile_partitioned
from collage.compile.rewrite import apply
from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.rules import PartitionRule, gather_candidates, graph_rule, library_rule
from collage.rules.base import PartitionSpec
from collage.search import CostTable, Partitioning, SearchProblem
from collage.search.coalescing import coalesced
from collage.testing.problems import best_value, has_cycle, value
from searchers.dijkstra import DijkstraSearcher
from tests.e2e.random_networks import Network, random_network

#: Brute force tries all covers of graphs up to this size, of so many candidates.
SMALL, FEW = 9, 26


class Imagined(Backend):
    """A backend that is searched and rewritten for; what it would compile is left to TVM."""

    style: Style = "graph"

    def availability(self) -> Availability:
        return Availability(True)

    def version(self) -> str:
        return "1"


class Engine(Imagined):
    name = "engine"

    def rule(self) -> PartitionRule:
        return graph_rule(lambda node: node.op != "relax.tanh")


class Library(Imagined):
    name = "library"
    style: Style = "library"

    def rule(self) -> PartitionRule:
        product = is_op("relax.matmul")(wildcard(), wildcard())
        patterns = {"product": product, "product_relu": is_op("relax.nn.relu")(product)}
        return library_rule((f"library.{label}", pattern, None) for label, pattern in patterns.items())


class Calling(TVMBackend):
    """TVM's kernels, and calls of the library between them."""

    name = "calling"


BACKENDS: dict[str, Backend] = {b.name: b for b in (TVMBackend(), Engine(), Library())}
MORE: dict[str, Backend] = {**BACKENDS, "calling": Calling(libraries=[Library()])}


def problem_of(
    graph: DataflowGraph, candidates: Sequence[CandidatePartition], backends: Mapping[str, Backend], seed: int
) -> SearchProblem:
    """Random whole costs, so that there are ties; larger candidates are cheaper than their parts in every other one."""
    rng = random.Random(seed)
    power = 1 + seed % 2
    costs = {c: Cost(float(rng.randint(1, 3) + len(c.sub_graph.inside) ** power)) for c in candidates}
    pairs = [(a, b) for a in backends for b in backends if a != b]
    return SearchProblem(
        graph,
        CandidateSet(candidates),
        CostTable(lambda asked: [costs.setdefault(c, Cost(1.0)) for c in asked]),
        {pair: Transition(float(rng.randint(0, 2))) for pair in pairs},
        {name: backend.priority for name, backend in backends.items()},
    )


def plain(function: Any) -> Any:
    """What an imagined backend would compile, as a function for TVM."""
    return function.without_attr("Codegen") if function.attrs and "Codegen" in function.attrs else function


def numbers(module: Any, graph: DataflowGraph, found: Partitioning, network: Network) -> list[np.ndarray]:
    partitioned = apply(module, graph, found.candidates, MORE)
    for_tvm = tvm.IRModule({gv: plain(f) for gv, f in partitioned.functions_items()})
    executable = compile_partitioned(relax.transform.LambdaLift()(for_tvm), [TVMBackend()], 1, scheduled=False)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*(tvm.runtime.tensor(a) for a in network.inputs))
    return [tensor.numpy() for tensor in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def check(seed: int) -> None:
    network = random_network(seed)
    module = collage.load(network.module, network.shapes)
    graph = read_graph(module)
    backends = BACKENDS if seed % 3 else MORE
    specs = [PartitionSpec(backend.rule(), name) for name, backend in backends.items()]
    gather_candidates(graph, specs[:1])  # TVM alone covers what TVM alone can run
    candidates = gather_candidates(graph, specs)
    problem = problem_of(graph, candidates, backends, seed)
    found = DijkstraSearcher(time_limit_s=None).search(problem)
    if len(graph.coverable) <= SMALL and len(candidates) <= FEW:
        assert value(problem, found.candidates) == best_value(problem)
    for union in coalesced(graph, found, candidates, backends):
        apart = [c for c in found.candidates if c.sub_graph.inside.isdisjoint(union.sub_graph.inside)]
        assert union.sub_graph.is_convex and not has_cycle(graph, [*apart, union])
    for given, expected in zip(numbers(module, graph, found, network), network.outputs, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_network(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_random_networks() -> None:
    failed = {}
    for seed in range(20, 2020):
        try:
            check(seed)
        except Exception as error:  # all of them are told at once
            failed[seed] = f"{type(error).__name__}: {error}"[:200]
    assert not failed
