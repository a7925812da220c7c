"""Sound pruning: drops candidates that are in no cover, and nothing else.

A cover holds each node exactly once. If every candidate that holds some node overlaps with candidate c, and c does
not hold it, then c is in no cover. Dropping c can leave others without partners in turn, so the condition is applied
to a fixed point. The optimum over what remains is the optimum over all. (The pruning of TVM's Collage dropped
sub-graphs inside larger ones, and with them the optimum whenever two small candidates beat the large one.)

Nodes with a candidate of their own need no look: that one is disjoint from every candidate that does not hold the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from collage.graph.candidates import CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph


def prune(graph: DataflowGraph, candidates: Iterable[CandidatePartition]) -> CandidateSet:
    """The candidates without those that fit in no cover.

    When nothing remains there is no cover at all.
    """
    kept = list(candidates)
    while True:
        tight = _tight_nodes(graph, kept)
        survivors = [c for c in kept if _has_partners(c.sub_graph.inside.bits, tight)]
        if len(survivors) == len(kept):
            return CandidateSet(kept)
        kept = survivors


def _tight_nodes(graph: DataflowGraph, candidates: Iterable[CandidatePartition]) -> list[tuple[int, set[int]]]:
    """(bit of a node, the candidates that hold it, as bit sets) for nodes that no candidate holds alone."""
    holders: dict[int, set[int]] = {node: set() for node in graph.coverable}
    for candidate in candidates:
        for node in candidate.sub_graph.inside:
            if node in holders:
                holders[node].add(candidate.sub_graph.inside.bits)
    return [(1 << node, sets) for node, sets in holders.items() if 1 << node not in sets]


def _has_partners(bits: int, tight: list[tuple[int, set[int]]]) -> bool:
    return all(bits & node or any(not bits & other for other in sets) for node, sets in tight)
