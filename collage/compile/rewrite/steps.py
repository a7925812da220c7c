"""Steps: a native partition with labelled patterns inside calls libraries between its kernels (RFC 0062, appendix B:
"Allow library calls from within TVM-generated kernels").

Each labelled pattern is a function of its library. What is left becomes as few kernels as can be: operators that hang
together, and that read results of libraries after equally many calls, are one; where that had several results, each
operator is one. `main` calls the steps one after the other, so that memory is planned for all of them together. They
are one partition all the same: searched, measured and recorded as one.
"""

from __future__ import annotations

from collections.abc import Iterator

from collage.backends.base import Backend
from collage.compile.rewrite.body import order_of_groups
from collage.compile.rewrite.partition import Partition, partition_function
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.quotient import DisjointSets
from collage.graph.sub_graph import SubGraph

_Group = tuple[str, IndexSet]


def step_symbol(symbol: str, number: int) -> str:
    """The name of a step of a partition: of the first one its own, so that it is counted once."""
    return f"within_{symbol}_{number}" if number else symbol


def steps_of(graph: DataflowGraph, candidate: CandidatePartition, backend: Backend, symbol: str) -> list[Partition]:
    """The functions of a partition, in the order in which they are called; one, but for native ones with labels.

    Raises
    ------
    CodegenError
        The backend calls no library of a label.
    PlanError
        Labelled patterns need each other's results in a circle.
    """
    if backend.style != "native" or not candidate.composites:
        return [partition_function(graph, candidate, backend, symbol)]
    found: list[Partition] = []
    for label, nodes in _groups(graph, candidate):
        owner, own = backend.library_of(label) if label else (backend, "")
        step = CandidatePartition(SubGraph(graph, nodes), owner.name, ((own, nodes),) if own else ())
        found.append(partition_function(graph, step, owner, step_symbol(symbol, len(found))))
    return found


def _groups(graph: DataflowGraph, candidate: CandidatePartition) -> list[_Group]:
    """Labelled patterns, and the kernels around them, with the label "": each after those that it reads."""
    labelled = {index for _, nodes in candidate.composites for index in nodes}
    kernels = (("", nodes) for nodes in _kernels(graph, candidate, labelled))
    groups = [*candidate.composites, *kernels]
    return [groups[position] for position in order_of_groups(graph, groups)]


def _kernels(graph: DataflowGraph, candidate: CandidatePartition, labelled: set[int]) -> Iterator[IndexSet]:
    """What is not labelled, in groups between which no path through a library's call leads back."""
    single = [("", IndexSet([index])) for index in candidate.sub_graph.inside if index not in labelled]
    groups = [*candidate.composites, *single]
    calls: dict[int, int] = {}  # of libraries, one after the other, before a node can be computed
    together = DisjointSets()
    for label, nodes in (groups[position] for position in order_of_groups(graph, groups)):
        reads = [i for node in nodes for i in graph.nodes[node].inputs if i in calls and i not in nodes]
        count = max((calls[i] + (i in labelled) for i in reads), default=0)
        calls.update(dict.fromkeys(nodes, count))
        for i in reads if not label else ():
            if i not in labelled and calls[i] == count:
                together.join(i, nodes.first)
    for members in together.groups(nodes.first for _, nodes in single):
        inside = IndexSet(members)
        one_result = len(SubGraph(graph, inside).exits) == 1
        yield from [inside] if one_result else [IndexSet([member]) for member in members]
