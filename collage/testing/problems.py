"""Small search problems, and an independent brute force that knows their best covers.

The brute force shares no code with any searcher: it tries all choices of candidates, and orders covers by `value`. It
is meant for graphs of up to about a dozen nodes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collage.cost.cost import Cost
from collage.cost.transition import Pair, Transition
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind
from collage.graph.sub_graph import SubGraph
from collage.search import CostTable, Partitioning, SearchProblem


def graph_of(
    inputs: Sequence[Sequence[int]], ops: Sequence[str] | None = None, sizes: Sequence[int] | None = None
) -> DataflowGraph:
    """One call per entry, reading the calls given by their indices; `sizes` are bytes of what they give."""
    names = ops or ["relu"] * len(inputs)
    return DataflowGraph.from_edges(
        [(name, OpKind.ELEMENTWISE, list(sources)) for name, sources in zip(names, inputs, strict=True)], sizes=sizes
    )


def candidate(graph: DataflowGraph, backend: str, nodes: Iterable[int], label: str = "") -> CandidatePartition:
    """A candidate of these nodes; with a label, the whole of it is one library pattern."""
    inside = IndexSet(nodes)
    return CandidatePartition(SubGraph(graph, inside), backend, ((label, inside),) if label else ())


def problem_of(
    graph: DataflowGraph,
    costs: Mapping[CandidatePartition, Cost | float],
    transitions: Mapping[Pair, Transition | float] | None = None,
    priorities: Mapping[str, int] | None = None,
    budget_s: float | None = None,
    seed: int = 0,
) -> SearchProblem:
    """The problem whose candidates are the keys of `costs`, at these costs (in seconds); so are `transitions`."""

    def estimate(candidates: Sequence[CandidatePartition]) -> list[Cost]:
        return [c if isinstance(c, Cost) else Cost(c) for c in (costs[candidate] for candidate in candidates)]

    return SearchProblem(
        graph,
        CandidateSet(costs),
        CostTable(estimate),
        {pair: t if isinstance(t, Transition) else Transition(t) for pair, t in (transitions or {}).items()},
        priorities or {},
        budget_s=budget_s,
        seed=seed,
    )


def shape(partitioning: Partitioning) -> set[tuple[str, tuple[int, ...]]]:
    """Backend and nodes of each partition."""
    return {(c.backend, tuple(c.sub_graph.inside)) for c in partitioning.candidates}


def covers(problem: SearchProblem) -> Iterator[tuple[CandidatePartition, ...]]:
    """Every acyclic cover by candidates that are not Invalid, found by trying all."""
    usable = [c for c in problem.candidates if not problem.cost(c).is_invalid]

    def extend(
        left: frozenset[int], chosen: tuple[CandidatePartition, ...]
    ) -> Iterator[tuple[CandidatePartition, ...]]:
        if not left:
            if not has_cycle(problem.graph, chosen):
                yield chosen
            return
        for c in usable:
            nodes = frozenset(c.sub_graph.inside)
            if min(left) in nodes and nodes <= left:
                yield from extend(left - nodes, (*chosen, c))

    yield from extend(frozenset(problem.nodes), ())


def value(problem: SearchProblem, cover: Sequence[CandidatePartition]) -> tuple[float, ...]:
    """What covers are ordered by: unknown nodes, their priority ranks, cost, partitions, all nodes' priority ranks."""
    declared = sorted({problem.priority(c.backend) for c in problem.candidates if c.backend != HOST})
    owner = {node: i for i, c in enumerate(cover) for node in c.sub_graph.inside}
    known, unknown_nodes, unknown_rank, count, rank = 0.0, 0, 0, 0, 0
    for c in cover:
        if c.backend == HOST:
            continue
        size, cost = len(c.sub_graph.inside), problem.cost(c)
        ranked = size * declared.index(problem.priority(c.backend))
        count, rank = count + 1, rank + ranked
        if cost.is_unknown:
            unknown_nodes, unknown_rank = unknown_nodes + size, unknown_rank + ranked
        else:
            known += cost.seconds
    known += sum(_charge(problem, cover[i].backend, i, cover, owner) for i in range(len(cover)))
    return (unknown_nodes, unknown_rank, round(known, 9), count, rank)


def _charge(
    problem: SearchProblem, consumer: str, i: int, cover: Sequence[CandidatePartition], owner: Mapping[int, int]
) -> float:
    """What partition `i` pays for what it reads; the host, which hands on what it reads, pays nothing."""
    if consumer == HOST:
        return 0.0
    seconds = 0.0
    read = {s for node in cover[i].sub_graph.inside for s in problem.graph.nodes[node].inputs if s in owner}
    for source in {owner[s] for s in read} - {i}:
        size = sum(problem.graph.nodes[s].size for s in read if owner[s] == source)
        for producer in _origins(problem.graph, source, cover, owner):
            if producer != consumer and (producer, consumer) in problem.transitions:
                seconds += problem.transitions[producer, consumer].seconds(size)
    return seconds


def _origins(graph: DataflowGraph, i: int, cover: Sequence[CandidatePartition], owner: Mapping[int, int]) -> list[str]:
    """The backends whose results a partition of an acyclic cover hands on."""
    if cover[i].backend != HOST:
        return [cover[i].backend]
    read = {owner[s] for node in cover[i].sub_graph.inside for s in graph.nodes[node].inputs if s in owner}
    return [backend for source in read - {i} for backend in _origins(graph, source, cover, owner)]


def best_value(problem: SearchProblem) -> tuple[float, ...] | None:
    """The least value of any cover; None when there is none."""
    return min((value(problem, cover) for cover in covers(problem)), default=None)


def is_lower_bound(problem: SearchProblem, bound: float) -> bool:
    """Whether no cover could be below the bound even if every unknown cost were zero."""
    return all(value(problem, cover)[2] >= bound - 1e-9 for cover in covers(problem)) and not math.isnan(bound)


def has_cycle(graph: DataflowGraph, cover: Sequence[CandidatePartition]) -> bool:
    """Whether partitions depend on each other in a cycle, so that none of them could run first."""
    owner = {node: i for i, c in enumerate(cover) for node in c.sub_graph.inside}
    reads: dict[int, set[int]] = {i: set() for i in range(len(cover))}
    for node, mine in owner.items():
        reads[mine].update(owner[s] for s in graph.nodes[node].inputs if s in owner and owner[s] != mine)
    done: set[int] = set()
    while len(done) < len(cover):
        runnable = {i for i in reads if i not in done and reads[i] <= done}
        if not runnable:
            return True
        done |= runnable
    return False


@dataclass(frozen=True)
class Given:
    """A problem's parts, from which equal problems can be made again and again."""

    graph: DataflowGraph
    costs: Mapping[CandidatePartition, Cost | float]
    transitions: Mapping[Pair, Transition | float]
    priorities: Mapping[str, int]

    def problem(self, order: int | None = None, budget_s: float | None = None, seed: int = 0) -> SearchProblem:
        """The problem; `order` seeds a shuffle of the candidates, None leaves them in their order."""
        listed = list(self.costs)
        if order is not None:
            random.Random(order).shuffle(listed)
        costs = {c: self.costs[c] for c in listed}
        return problem_of(self.graph, costs, dict(self.transitions), dict(self.priorities), budget_s, seed)


def random_given(seed: int, singles: bool = True, unknown: bool = False, size: int = 8) -> Given:
    """Three backends, small whole costs (so that there are ties), Invalid candidates, transitions, convex or not.

    With `singles` every node can run on its own; else there may be no cover at all. With `unknown` some costs are.
    """
    rng = random.Random(seed)
    count = rng.randint(2, size)
    reads = [sorted(rng.sample(range(max(0, i - 4), i), min(i, rng.randint(0, 2)))) for i in range(count)]
    graph = graph_of(reads, sizes=[rng.randint(0, 2) for _ in range(count)])
    backends = ("x", "y", "z")
    costs: dict[CandidatePartition, Cost | float] = {}
    for _ in range(rng.randint(count, 2 * count)):
        nodes = rng.sample(range(count), min(count, rng.randint(1, 3)))
        kinds = ["cost"] * 6 + ["invalid"] + ["unknown"] * (2 if unknown else 0)
        kind = rng.choice(kinds)
        value: Cost | float = float(rng.randint(0, 6))
        if kind != "cost":
            value = Cost.invalid("refused") if kind == "invalid" else Cost.unknown("never measured")
        costs[candidate(graph, rng.choice(backends), nodes)] = value
    for node in range(count) if singles else ():
        hidden = unknown and rng.random() < 0.4
        alone: Cost | float = Cost.unknown("never measured") if hidden else float(rng.randint(2, 9))
        costs[candidate(graph, rng.choice(backends), [node])] = alone
    rate = rng.choice((0.0, 0.5))
    pairs = [(a, b) for a in backends for b in backends if a != b]
    transitions = {pair: Transition(float(rng.randint(0, 2)), rate * rng.randint(0, 2)) for pair in pairs}
    return Given(graph, costs, transitions, {backend: rng.randint(1, 3) for backend in backends})


def butterfly() -> Given:
    """a1, b2, a2 = f(a1, b2), b1 = f(b2, a1): {a1, a2} and {b2, b1} are each convex, cheap, and need each other."""
    graph = graph_of([[], [], [0, 1], [1, 0]])
    costs = {candidate(graph, backend, [node]): 10.0 for backend, node in (("x", 0), ("y", 1), ("x", 2), ("y", 3))}
    costs |= {candidate(graph, "x", [0, 2]): 1.0, candidate(graph, "y", [1, 3]): 2.0}
    return Given(graph, costs, {}, {"x": 1, "y": 2})


def with_host() -> Given:
    """relu, an opaque sort, and a tuple and its projection, which stay on the host between two backends."""
    nodes: list[tuple[str, OpKind | NodeKind, list[int]]] = [
        ("relu", OpKind.ELEMENTWISE, []),
        ("sort", OpKind.OPAQUE, [0]),
        ("tuple", NodeKind.TUPLE, [0, 1]),
        ("tuple_get", NodeKind.TUPLE_GET, [2]),
        ("relu", OpKind.ELEMENTWISE, [3]),
    ]
    graph = DataflowGraph.from_edges(nodes)
    costs: dict[CandidatePartition, Cost | float] = {candidate(graph, HOST, [node]): 0.0 for node in (2, 3)}
    costs |= {candidate(graph, "x", [0]): 1.0, candidate(graph, "y", [1]): 2.0, candidate(graph, "x", [4]): 4.0}
    return Given(graph, costs, {("x", "y"): 8.0, ("y", "x"): 16.0}, {"x": 1, "y": 2})


def large_given(seed: int = 0, size: int = 200, width: int = 4) -> Given:
    """Far too large to be searched to the end: long overlapping candidates on several interleaved chains."""
    rng = random.Random(seed)
    reads = [[i - width] if i >= width else [] for i in range(size)]
    for i in range(1, size):
        reads[i].append(rng.randrange(max(0, i - 12), i))
    graph = graph_of(reads)
    backends = ("x", "y", "z")
    costs: dict[CandidatePartition, Cost | float] = {}
    for start in range(size):
        for backend in backends:
            for length in (1, 2, 3, 5):
                nodes = [n for n in range(start, start + length * width, width) if n < size]
                found = candidate(graph, backend, nodes)
                if found.sub_graph.is_convex:
                    costs[found] = 1.0 + rng.random() * len(nodes)
    transitions = {(a, b): 0.3 for a in backends for b in backends if a != b}
    return Given(graph, costs, transitions, {"x": 1, "y": 2, "z": 3})
