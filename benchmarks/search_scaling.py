"""How enumeration and search grow with the network: `python -m benchmarks.search_scaling [--large] [--budget S]`.

Synthetic networks, the rules of two native and two graph backends, made-up costs (seeded, so every run has the same),
20 µs per transition. The growth exponent is the slope of log(time) over log(operators) between one size and the next:
1 is linear. Searching is timed without costing. *Measured* are the distinct workloads (equal structures on equal
backends) whose cost a searcher asks for: with eager costing all that there are, with lazy costing
(`searchers.lazy.costing`) those that may be on the best path. It does not depend on the machine, and neither does the
number of partial covers (states) that are expanded, unless a search runs into its time limit.

The gap is how far the answer may be above the optimum, as proven: zero except where the time limit comes first.
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

from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import OpKind
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.rules.trees import graph_rule, native_rule
from collage.search import CostTable, Partitioning, Searcher, SearchProblem
from searchers.beam import BeamSearcher
from searchers.cover_search.layered_search import LayeredSearch, Outcome
from searchers.dijkstra import DijkstraSearcher
from searchers.greedy import GreedySearcher

NATIVE, ENGINES = ("native", "native-wide"), ("engine-a", "engine-b")
BACKENDS = (*NATIVE, *ENGINES)
TRANSITION_S = 20e-6
#: Lazy costing searches once a round, so it is shown on networks of up to this many operators.
_LAZY_UP_TO = 1_200
_ALONE_S = {"depthwise5": 200e-6, "depthwise3": 150e-6, "pool": 60e-6}
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
    """`width` branches side by side, of eight kinds of convolution that differ in what runs them best. In every layer
    each joins two random others: every value has several readers on several backends, candidates overlap across
    branches, and there is no articulation point anywhere. Meant to be too hard to be proven.
    """
    net = Network()
    rng = random.Random(0)
    last = [net(f"conv{rng.randrange(8)}") for _ in range(width)]
    while len(net.nodes) < size:
        last = [net(f"conv{rng.randrange(8)}", source) for source in last]
        last = [net("relu", net("add", source, rng.choice(last))) for source in rng.sample(last, width)]
    return DataflowGraph.from_edges(net.nodes)


def structure(graph: DataflowGraph, candidate: CandidatePartition) -> tuple[str, ...]:
    """Candidates of equal structure are one workload."""
    return (candidate.backend, *(graph.nodes[i].op for i in candidate.sub_graph.inside))


def made_up_costs(graph: DataflowGraph, seed: int = 0) -> Callable[[Sequence[CandidatePartition]], list[Cost]]:
    """A time per backend and operator; fused, all but anchors cost less. Equal structures cost the same."""
    known: dict[tuple[str, ...], float] = {}

    def alone(backend: str, op: str) -> float:
        base = 300e-6 if op.startswith("conv") else _ALONE_S.get(op, 20e-6)
        return base * random.Random(f"{seed} {backend} {op}").uniform(0.7, 1.5)

    def cost(candidate: CandidatePartition) -> Cost:
        key = structure(graph, candidate)
        ops = key[1:]
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
    costed
        Candidates whose cost was asked for.
    measured
        Distinct workloads among them.
    costing_s
        Seconds that the made-up costs took.
    search_s
        The rest of the wall time.
    states
        Partial covers expanded.
    """

    costed: int
    measured: int
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
    measured: set[tuple[str, ...]] = set()

    def counted(candidates: Sequence[CandidatePartition]) -> list[Cost]:
        nonlocal costed, costing_s
        begin = time.perf_counter()
        costs = estimate(candidates)
        costed, costing_s = costed + len(costs), costing_s + time.perf_counter() - begin
        measured.update(structure(network.graph, c) for c in candidates)
        return costs

    transitions = {(a, b): Transition(TRANSITION_S) for a in BACKENDS for b in BACKENDS if a != b}
    priorities = {name: i for i, name in enumerate(BACKENDS)}
    problem = SearchProblem(
        network.graph,
        network.candidates,
        CostTable(counted, lambda candidate: structure(network.graph, candidate)),
        transitions,
        priorities,
    )
    with states_expanded() as outcomes:
        begin = time.perf_counter()
        found = searcher.search(problem)
        wall_s = time.perf_counter() - begin
    states = sum(outcome.expanded for outcome in outcomes)
    return Result(costed, len(measured), costing_s, wall_s - costing_s, states, found)


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
    """One row per network and searcher; lazy costing up to `_LAZY_UP_TO` operators."""
    searchers: dict[str, Searcher] = {
        "dijkstra": DijkstraSearcher(budget_s),
        "dijkstra, lazy": DijkstraSearcher(budget_s, costing="lazy"),
        "beam": BeamSearcher(time_limit_s=budget_s),
        "greedy": GreedySearcher(),
    }
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
            if "lazy" in label and sizes[-1] > _LAZY_UP_TO:
                continue
            result = measure(network, searcher)
            results[label].append(result)
            table.add_row(
                *(first if label == "dijkstra" else ("",) * len(first)),
                label,
                f"{result.costed:,}",
                f"{result.measured:,}",
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
    parser.add_argument("--large", action="store_true", help="also 20,000 operators, and 3,000 and more in cells")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds that a search may take (default 60)")
    parser.add_argument("--only", choices=("chain", "tower", "cells", "layered"), help="only networks of this kind")
    parser.add_argument("--sizes", type=int, nargs="+", help="about so many operators, instead of the usual sizes")
    options = parser.parse_args()
    table = Table(title=f"Enumeration and search, {options.budget:g} s for each: seconds, states, growth exponents")
    columns = ("network", "operators", "candidates", "enum. s", "exp.", "searcher", "costed", "measured", "search s")
    for column in (*columns, "exp.", "states", "exp.", "cost ms", "gap"):
        table.add_column(column, justify="left" if column in ("network", "searcher") else "right")
    console = Console(width=160)
    large = options.large
    kinds: dict[str, tuple[Callable[[int], DataflowGraph], tuple[int, ...]]] = {
        "chain": (chain, (100, 1_000, 10_000, *((20_000,) if large else ()))),
        "tower": (residual_tower, (100, 1_000, 10_000, *((20_000,) if large else ()))),
        "cells": (nasnet_like, (100, 300, 1_000, *((3_000, 10_000, 20_000) if large else ()))),
        "layered": (layered, (320, *((1_000, 3_000) if large else ()))),
    }
    titles = {"chain": "chain", "tower": "residual tower", "cells": "NASNet-like cells", "layered": "32 branches"}
    for kind, (make, sizes) in kinds.items():
        if options.only in (None, kind):
            networks = [make(size) for size in options.sizes or sizes]
            add_rows(table, console, titles[kind], networks, options.budget)
    console.print(table)


if __name__ == "__main__":
    main()
