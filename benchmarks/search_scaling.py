"""How enumeration and search grow with the network: `python -m benchmarks.search_scaling [--large]`.

Synthetic networks, the rules of one native and two graph backends, made-up costs (seeded, so every run has the same),
20 µs per transition. The growth exponent is the slope of log(time) over log(operators) between one size and the next:
1 is linear.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from collage.candidates import CandidatePartition, CandidateSet, PartitionSpec
from collage.cost import Cost
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import OpKind
from collage.rules.gather import gather_candidates
from collage.rules.trees import graph_rule, native_rule
from collage.search import Partitioning, SearchProblem
from searchers.dijkstra import DijkstraSearcher

BACKENDS = ("native", "engine-a", "engine-b")
TRANSITION_S = 20e-6
Node = tuple[str, OpKind, Sequence[int]]


class Network:
    """Collects nodes; a call adds one and gives its index."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def __call__(self, op: str, *inputs: int) -> int:
        kind = {"add": OpKind.BROADCAST, "relu": OpKind.ELEMENTWISE, "concat": OpKind.INJECTIVE}.get(op, OpKind.ANCHOR)
        self.nodes.append((op, kind, inputs))
        return len(self.nodes) - 1


def chain(size: int) -> DataflowGraph:
    """Convolution, bias, activation, over and over."""
    net = Network()
    last = net("conv")
    while len(net.nodes) < size:
        last = net(("conv", "add", "relu")[len(net.nodes) % 3], last)
    return DataflowGraph.from_edges(net.nodes)


def residual_tower(size: int) -> DataflowGraph:
    """Blocks of three biased convolutions with a skip connection, as in ResNet-50."""
    net = Network()
    last = net("conv")
    while len(net.nodes) < size:
        inner = last
        for _ in range(2):
            inner = net("relu", net("add", net("conv", inner)))
        last = net("relu", net("add", net("add", net("conv", inner)), last))
    return DataflowGraph.from_edges(net.nodes)


def nasnet_like(size: int) -> DataflowGraph:
    """Cells of five pairs of branches over the two cells before, as in NASNet-A: wide, with few articulation points."""
    net = Network()

    def separable(source: int, width: int) -> int:
        for _ in range(2):
            source = net("add", net("conv", net(f"depthwise{width}", net("relu", source))))
        return source

    before = previous = net("conv")
    while len(net.nodes) < size:
        left = net("add", net("conv", net("relu", before)))
        right = net("add", net("conv", net("relu", previous)))
        sums = [
            net("add", separable(right, 5), separable(left, 3)),
            net("add", separable(left, 5), separable(left, 3)),
            net("add", net("pool", right), left),
            net("add", net("pool", left), net("pool", left)),
            net("add", separable(right, 3), right),
        ]
        before, previous = previous, net("concat", right, *sums)
    return DataflowGraph.from_edges(net.nodes)


def made_up_costs(graph: DataflowGraph, seed: int = 0) -> Callable[[Sequence[CandidatePartition]], list[Cost]]:
    """A time per backend and operator; fused, all but anchors cost less. Equal structures cost the same."""
    known: dict[tuple[str, ...], float] = {}

    def alone(backend: str, op: str) -> float:
        base = {"conv": 300e-6, "depthwise5": 200e-6, "depthwise3": 150e-6, "pool": 60e-6}.get(op, 20e-6)
        return base * random.Random(f"{seed} {backend} {op}").uniform(0.7, 1.5)

    def cost(candidate: CandidatePartition) -> Cost:
        ops = [graph.nodes[i].op for i in candidate.sub_graph.inside]
        key = (candidate.backend, *ops)
        if key not in known:
            fused = 0.4 if len(ops) > 1 else 1.0
            times = [alone(candidate.backend, op) * (fused if op in ("add", "relu", "concat") else 1.0) for op in ops]
            known[key] = (sum(times) + 5e-6) * random.Random(f"{seed} {key}").uniform(0.95, 1.05)
        return Cost(known[key])

    return lambda candidates: [cost(c) for c in candidates]


@dataclass(frozen=True)
class Result:
    """One row: sizes, seconds, and what the search found."""

    operators: int
    candidates: int
    enumeration_s: float
    search_s: float
    found: Partitioning


def measure(graph: DataflowGraph) -> Result:
    specs = [PartitionSpec(native_rule(), BACKENDS[0])]
    specs += [PartitionSpec(graph_rule(lambda node: True), name) for name in BACKENDS[1:]]
    begin = time.perf_counter()
    candidates: CandidateSet = gather_candidates(graph, specs)
    enumerated = time.perf_counter()
    transitions = {(a, b): TRANSITION_S for a in BACKENDS for b in BACKENDS if a != b}
    priorities = {name: i for i, name in enumerate(BACKENDS)}
    problem = SearchProblem(graph, candidates, made_up_costs(graph), transitions, priorities)
    problem.costs(list(candidates))  # costing is not searching
    costed = time.perf_counter()
    found = DijkstraSearcher().search(problem)
    done = time.perf_counter()
    return Result(len(graph.coverable), len(candidates), enumerated - begin, done - costed, found)


def growth(before: Result | None, result: Result, seconds: Callable[[Result], float]) -> str:
    if before is None:
        return ""
    return f"{math.log(seconds(result) / seconds(before)) / math.log(result.operators / before.operators):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also a tower of 20,000 operators and 5,000 in cells")
    large = parser.parse_args().large
    table = Table(title="Enumeration and search, seconds and growth exponents")
    for column in ("network", "operators", "candidates", "enumeration", "growth", "search", "growth", "gap", "parts"):
        table.add_column(column, justify="left" if column == "network" else "right")
    console = Console(width=120)
    networks: list[tuple[str, Callable[[int], DataflowGraph], tuple[int, ...]]] = [
        ("chain", chain, (100, 1_000, 10_000)),
        ("residual tower", residual_tower, (100, 1_000, 10_000, *((20_000,) if large else ()))),
        ("NASNet-like cells", nasnet_like, (100, 300, 1_000, *((5_000,) if large else ()))),
    ]
    for name, make, sizes in networks:
        before = None
        for size in sizes:
            console.print(f"{name}, {size} operators ...", style="dim")
            result = measure(make(size))
            table.add_row(
                name,
                f"{result.operators:,}",
                f"{result.candidates:,}",
                f"{result.enumeration_s:.2f}",
                growth(before, result, lambda r: r.enumeration_s),
                f"{result.search_s:.2f}",
                growth(before, result, lambda r: r.search_s),
                f"{result.found.gap:.2%}",
                f"{len(result.found.partitions):,}",
            )
            before = result
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
