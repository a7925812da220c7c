"""Small search problems and an independent brute force, shared by the tests of searchers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from collage.candidates import HOST, CandidatePartition, CandidateSet
from collage.cost import Cost
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.kinds import OpKind
from collage.graph.sub_graph import SubGraph
from collage.search import Partitioning, SearchProblem


def graph_of(inputs: Sequence[Sequence[int]], ops: Sequence[str] | None = None) -> DataflowGraph:
    """One call per entry, reading the calls given by their indices."""
    names = ops or ["relu"] * len(inputs)
    return DataflowGraph.from_edges(
        [(name, OpKind.ELEMENTWISE, list(sources)) for name, sources in zip(names, inputs, strict=True)]
    )


def candidate(graph: DataflowGraph, backend: str, nodes: Iterable[int], label: str = "") -> CandidatePartition:
    inside = IndexSet(nodes)
    return CandidatePartition(SubGraph(graph, inside), backend, ((label, inside),) if label else ())


def problem_of(
    graph: DataflowGraph,
    costs: Mapping[CandidatePartition, Cost | float],
    transitions: Mapping[tuple[str, str], float] | None = None,
    priorities: Mapping[str, int] | None = None,
) -> SearchProblem:
    def estimate(candidates: Sequence[CandidatePartition]) -> list[Cost]:
        return [c if isinstance(c, Cost) else Cost(c) for c in (costs[candidate] for candidate in candidates)]

    return SearchProblem(graph, CandidateSet(costs), estimate, transitions or {}, priorities or {})


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
            if not _has_cycle(problem.graph, chosen):
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
    crossings = {
        (owner[source], owner[node.index])
        for node in problem.graph.nodes
        for source in node.inputs
        if source in owner and node.index in owner and owner[source] != owner[node.index]
    }
    for a, b in crossings:
        first, second = cover[a].backend, cover[b].backend
        if first != second and HOST not in (first, second):
            known += problem.transitions.get((first, second), 0.0)
    return (unknown_nodes, unknown_rank, round(known, 9), count, rank)


def best_value(problem: SearchProblem) -> tuple[float, ...] | None:
    """The least value of any cover; None when there is none."""
    return min((value(problem, cover) for cover in covers(problem)), default=None)


def is_lower_bound(problem: SearchProblem, bound: float) -> bool:
    """Whether no cover could be below the bound even if every unknown cost were zero."""
    return all(value(problem, cover)[2] >= bound - 1e-9 for cover in covers(problem)) and not math.isnan(bound)


def _has_cycle(graph: DataflowGraph, cover: Sequence[CandidatePartition]) -> bool:
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
