"""Gathering: the candidates of all backends, and of the host, for one graph (RFC 0062, phase 1)."""

from __future__ import annotations

from collections.abc import Iterable

from collage.errors import NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet, covered
from collage.graph.dataflow_graph import DataflowGraph
from collage.rules.base import PartitionSpec
from collage.rules.host import HostPartitionRule


def gather_candidates(graph: DataflowGraph, specs: Iterable[PartitionSpec]) -> CandidateSet:
    """The candidates that the specs' rules find, and the nodes that may stay on the host.

    Raises
    ------
    NoCoverError
        Some operator is in no candidate.
    """
    found: list[CandidatePartition] = []
    for spec in (*specs, PartitionSpec(HostPartitionRule(), HOST)):
        found.extend(spec.candidates(graph))
    candidates = CandidateSet(found)
    check_coverable(graph, candidates)
    return candidates


def check_coverable(graph: DataflowGraph, candidates: Iterable[CandidatePartition]) -> None:
    """Check that every node is in some candidate.

    Raises
    ------
    NoCoverError
        No backend can run some operator; the message names operators and nodes.
    """
    missing = graph.coverable - covered(candidates)
    if missing:
        names = ", ".join(str(graph.nodes[i]) for i in list(missing)[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        raise NoCoverError(f"no backend can run {names}{more}: add one that can (`collage backends` lists them)")
