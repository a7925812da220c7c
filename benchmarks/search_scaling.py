"""How enumeration and search grow with the network: `python -m benchmarks.search_scaling [--large] [--budget S]`.

Synthetic networks, the rules of two native and two graph backends, made-up costs (seeded, so every run has the same),
20 µs per transition. The growth exponent is the slope of log(time) over log(operators) between one size and the next:
1 is linear. Searching is timed without costing; how many candidates a searcher asks the cost of, and how many
half-built covers (states) it expands, does not depend on the machine unless a search runs into its time limit.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from collage.candidates import CandidatePartition, CandidateSet, PartitionSpec
from collage.cost import Cost
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import OpKind
from collage.rules.gather import gather_candidates
from collage.rules.trees import graph_rule, native_rule
from collage.search import Partitioning, Searcher, SearchProblem
from searchers.beam import BeamSearcher
from searchers.dijkstra import DijkstraSearcher
from searchers.layered_search import LayeredSearch, Outcome

NATIVE, ENGINES = ("native", "native-wide"), ("engine-a", "engine-b")
BACKENDS = (*NATIVE, *ENGINES)
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


def layered(size: int, width: int = 32) -> DataflowGraph:
    """`width` branches side by side, which exchange values in every third layer: no articulation point anywhere."""
    net = Network()
    rng = random.Random(0)
    last = [net("conv") for _ in range(width)]
    while len(net.nodes) < size:
        last = [net("conv", source) for source in last]
        last = [net("add", source, rng.choice([other for other in last if other != source])) for source in last]
        last = [net("relu", source) for source in last]
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
class Enumeration:
    """A network, its candidates, and the seconds that finding them took."""

    graph: DataflowGraph
    candidates: CandidateSet
    seconds: float


@dataclass(frozen=True)
class Result:
    """What one search took and found.

    Attributes
    ----------
    costed: candidates whose cost was asked for.
    costing_s: seconds that the made-up costs took.
    search_s: the rest of the wall time.
    states: half-built covers expanded.
    """

    costed: int
    costing_s: float
    search_s: float
    states: int
    found: Partitioning


def enumerate_candidates(graph: DataflowGraph) -> Enumeration:
    specs = [PartitionSpec(native_rule(), name) for name in NATIVE]
    specs += [PartitionSpec(graph_rule(lambda node: True), name) for name in ENGINES]
    begin = time.perf_counter()
    candidates = gather_candidates(graph, specs)
    return Enumeration(graph, candidates, time.perf_counter() - begin)


def measure(network: Enumeration, searcher: Searcher) -> Result:
    estimate = made_up_costs(network.graph)
    costed, costing_s = 0, 0.0

    def counted(candidates: Sequence[CandidatePartition]) -> list[Cost]:
        nonlocal costed, costing_s
        begin = time.perf_counter()
        costs = estimate(candidates)
        costed, costing_s = costed + len(costs), costing_s + time.perf_counter() - begin
        return costs

    transitions = {(a, b): TRANSITION_S for a in BACKENDS for b in BACKENDS if a != b}
    priorities = {name: i for i, name in enumerate(BACKENDS)}
    problem = SearchProblem(network.graph, network.candidates, counted, transitions, priorities)
    with states_expanded() as outcomes:
        begin = time.perf_counter()
        found = searcher.search(problem)
        wall_s = time.perf_counter() - begin
    return Result(costed, costing_s, wall_s - costing_s, sum(outcome.expanded for outcome in outcomes), found)


@contextmanager
def states_expanded() -> Iterator[list[Outcome]]:
    """The outcome of every layered search that is run inside the block."""
    run = LayeredSearch.run
    outcomes: list[Outcome] = []

    def kept(search: LayeredSearch) -> Outcome:
        outcomes.append(run(search))
        return outcomes[-1]

    with patch.object(LayeredSearch, "run", kept):
        yield outcomes


def growth(sizes: Sequence[int], values: Sequence[float]) -> str:
    """The exponent between the last two sizes; nothing when there is one size only."""
    if len(sizes) < 2:
        return ""
    return f"{math.log(max(values[-1], 1e-9) / max(values[-2], 1e-9)) / math.log(sizes[-1] / sizes[-2]):.2f}"


def add_rows(table: Table, console: Console, name: str, networks: Sequence[DataflowGraph], budget_s: float) -> None:
    """One row per network and searcher."""
    searchers = {"dijkstra": DijkstraSearcher(budget_s), "beam": BeamSearcher(time_limit_s=budget_s)}
    sizes: list[int] = []
    enumerations: list[float] = []
    results: dict[str, list[Result]] = {label: [] for label in searchers}
    for graph in networks:
        console.print(f"{name}, {len(graph.coverable)} operators ...", style="dim")
        network = enumerate_candidates(graph)
        sizes.append(len(graph.coverable))
        enumerations.append(network.seconds)
        shown = (f"{sizes[-1]:,}", f"{len(network.candidates):,}", f"{network.seconds:.2f}")
        first = (name, *shown, growth(sizes, enumerations))
        for label, searcher in searchers.items():
            result = measure(network, searcher)
            results[label].append(result)
            table.add_row(
                *(first if label == "dijkstra" else ("",) * len(first)),
                label,
                f"{result.costed:,}",
                f"{result.search_s:.2f}",
                growth(sizes, [r.search_s for r in results[label]]),
                f"{result.states:,}",
                growth(sizes, [r.states for r in results[label]]),
                f"{result.found.cost.seconds * 1e3:.3f}",
                f"{result.found.gap:.2%}",
            )
    table.add_section()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 20,000 operators, and 5,000 and more in cells")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds that a search may take (default 60)")
    parser.add_argument("--only", choices=("chain", "tower", "cells", "layered"), help="only networks of this kind")
    options = parser.parse_args()
    table = Table(title="Enumeration and search: seconds, states and growth exponents")
    columns = ("network", "operators", "candidates", "enum. s", "exp.", "searcher", "costed", "search s", "exp.")
    for column in (*columns, "states", "exp.", "cost ms", "gap"):
        table.add_column(column, justify="left" if column in ("network", "searcher") else "right")
    console = Console(width=140)
    large = options.large
    kinds: dict[str, tuple[Callable[[int], DataflowGraph], tuple[int, ...]]] = {
        "chain": (chain, (100, 1_000, 10_000, *((20_000,) if large else ()))),
        "tower": (residual_tower, (100, 1_000, 10_000, *((20_000,) if large else ()))),
        "cells": (nasnet_like, (100, 300, 1_000, *((5_000, 20_000) if large else ()))),
        "layered": (layered, (320, *((1_000, 3_000) if large else ()))),
    }
    titles = {"chain": "chain", "tower": "residual tower", "cells": "NASNet-like cells", "layered": "32 branches"}
    for kind, (make, sizes) in kinds.items():
        if options.only in (None, kind):
            add_rows(table, console, titles[kind], [make(size) for size in sizes], options.budget)
    console.print(table)


if __name__ == "__main__":
    main()
