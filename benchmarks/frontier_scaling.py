"""CPU seconds per frontier of latency and error, on graphs like those of ResNet-50 and BERT, with made-up costs.

    python -m benchmarks.frontier_scaling [--sizes 60 220 500] [--budget 60]

Each network has a native backend and an engine in float32, and the engine in bfloat16, of which every partition also
comes with growing sets of its products in eight bits, the least sensitive first. Errors of nodes are lognormal, and in
the sum about what was measured of the two networks. The table shows candidates, seconds, prices, and per error budget
the speed-up over the best cover without any error and the gap that is left.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.search_scaling import Network, residual_tower
from collage.annotations.precision import BF16, INT8
from collage.cost.cost import Cost
from collage.cost.transition import Transition
from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.rules.trees import graph_rule, native_rule
from collage.search import CostTable, SearchProblem
from collage.search.frontier import frontier
from searchers.dijkstra import DijkstraSearcher

BUDGETS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)
NATIVE, ENGINE, ENGINE_BF16 = "native", "engine", f"engine-{BF16}"
TRANSITION_S = 20e-6
#: Shares of the products of a partition that are in eight bits.
_LEVELS = (0.25, 0.5, 0.75, 1.0)
_PRODUCTS = ("conv", "matmul")
_SPEEDUPS = {BF16: 2.0, INT8: 4.0}


def bert_like(layers: int) -> DataflowGraph:
    """Layers of attention and two products, with biases, residual sums and normalisations, as in BERT."""
    net = Network()
    last = net("norm")
    for _ in range(layers):
        query, key, value = (net("add", net("matmul", last)) for _ in range(3))
        weights = net("softmax", net("scale", net("matmul", query, key)))
        mixed = net("add", net("matmul", net("matmul", weights, value)))
        last = net("norm", net("add", mixed, last))
        inner = net("gelu", net("add", net("matmul", last)))
        last = net("norm", net("add", net("add", net("matmul", inner)), last))
    return DataflowGraph.from_edges(net.nodes)


@dataclass(frozen=True)
class Case:
    """A network with made-up costs and errors.

    Attributes
    ----------
    whole
        Error of the whole network by precision.
    """

    name: str
    graph: DataflowGraph
    whole: dict[str, float]
    seed: int = 0

    def products(self, nodes: IndexSet) -> list[int]:
        return [i for i in nodes if self.graph.nodes[i].op in _PRODUCTS]

    def alone(self, node: int, precision: str) -> float:
        """Squared error of one product."""
        rng = random.Random(f"{self.seed} {node} {precision}")
        mean = self.whole[precision] ** 2 / len(self.products(self.graph.coverable))
        return mean * rng.lognormvariate(-0.5, 1.0)

    def squared_error(self, candidate: CandidatePartition) -> float:
        eight = {i for label, nodes in candidate.composites if label == INT8 for i in nodes}
        default = BF16 if candidate.backend == ENGINE_BF16 else None
        total = 0.0
        for node in self.products(candidate.sub_graph.inside):
            precision = INT8 if node in eight else default
            total += 0.0 if precision is None else self.alone(node, precision)
        return total

    def cost(self, candidate: CandidatePartition) -> Cost:
        eight = {i for label, nodes in candidate.composites if label == INT8 for i in nodes}
        total = 10e-6
        for node in candidate.sub_graph.inside:
            op = self.graph.nodes[node].op
            product = op in _PRODUCTS
            base = (300e-6 if product else 20e-6) * random.Random(f"{node} {op}").uniform(0.5, 2.0)
            if candidate.backend == NATIVE:
                total += base * random.Random(f"native {node}").uniform(0.8, 1.6)
            elif not product:
                total += 0.4 * base
            else:
                precision = INT8 if node in eight else BF16 if candidate.backend == ENGINE_BF16 else None
                speedup = 1.0 if precision is None else _SPEEDUPS[precision]
                total += base / speedup * random.Random(f"{node} {precision}").uniform(0.8, 1.2)
        return Cost(total)

    def with_levels(self, candidates: Sequence[CandidatePartition]) -> Iterator[CandidatePartition]:
        """The candidates, and those in bfloat16 with growing sets of products in eight bits."""
        for candidate in candidates:
            yield candidate
            if candidate.backend != ENGINE_BF16:
                continue
            products = sorted(self.products(candidate.sub_graph.inside), key=lambda i: self.alone(i, INT8))
            counts = sorted({math.ceil(share * len(products)) for share in _LEVELS})
            for count in counts if products else ():
                composites = ((INT8, IndexSet(products[:count])),)
                yield CandidatePartition(candidate.sub_graph, candidate.backend, composites)

    def problem(self) -> SearchProblem:
        specs = [PartitionSpec(native_rule(), NATIVE)]
        specs += [PartitionSpec(graph_rule(lambda node: True), name) for name in (ENGINE, ENGINE_BF16)]
        candidates = CandidateSet(self.with_levels(gather_candidates(self.graph, specs)))
        names = (NATIVE, ENGINE, ENGINE_BF16)
        transitions = {(a, b): Transition(TRANSITION_S, 1e-10) for a in names for b in names if a != b}
        costs = CostTable(lambda asked: [self.cost(c) for c in asked])
        costs.costs(list(candidates))
        return SearchProblem(self.graph, candidates, costs, transitions, {name: i for i, name in enumerate(names)})


def add_row(table: Table, case: Case, budget_s: float) -> None:
    problem = case.problem()
    errors = {c: case.squared_error(c) for c in problem.candidates}
    squared_error: Callable[[CandidatePartition], float] = errors.__getitem__
    begin = time.process_time()
    found = frontier(DijkstraSearcher(), problem, squared_error, BUDGETS, {}, budget_s=budget_s)
    seconds = time.process_time() - begin
    exact = found.best(0.0)
    cells = []
    for budget in BUDGETS:
        best = found.best(budget)
        speedup = math.nan if best is None or exact is None else exact.seconds / best.seconds
        cells.append(f"{speedup:.2f}x, {found.gap(budget):.2%}")
    size = len(case.graph.coverable)
    table.add_row(
        case.name, f"{size:,}", f"{len(problem.candidates):,}", f"{seconds:.1f}", str(len(found.duals)), *cells
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds that a frontier may take (default 60)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 220, 500], help="about so many operators")
    options = parser.parse_args()
    table = Table(title=f"Frontiers of {len(BUDGETS)} budgets, {options.budget:g} s for each")
    for column in ("network", "operators", "candidates", "CPU s", "prices"):
        table.add_column(column, justify="left" if column == "network" else "right")
    for budget in BUDGETS:
        table.add_column(f"{budget:.1%}", justify="right")
    for size in options.sizes:
        add_row(table, Case("like ResNet-50", residual_tower(size), {BF16: 0.0043, INT8: 0.019}), options.budget)
        add_row(table, Case("like BERT", bert_like(max(1, size // 20)), {BF16: 0.01, INT8: 0.12}), options.budget)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
