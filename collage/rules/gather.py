"""Gathering: the candidates of all backends, and of the host, for one graph (RFC 0062, phase 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collage.errors import NoCoverError
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet, covered, fits
from collage.graph.dataflow_graph import DataflowGraph
from collage.rules.base import PartitionSpec
from collage.rules.host import HostPartitionRule


def gather_candidates(
    graph: DataflowGraph, specs: Iterable[PartitionSpec], devices: Mapping[str, str] | None = None
) -> CandidateSet:
    """The candidates that the specs' rules find, and the nodes that may stay on the host.

    Parameters
    ----------
    devices
        Backend -> its device: candidates with a node that has to be on another device are left out. None leaves out
        none. Views and tuples on the host have no device of their own.

    Raises
    ------
    NoCoverError
        Some operator is in no candidate.
    """
    found: list[CandidatePartition] = []
    if devices is None or not any(node.place for node in graph.nodes):
        devices = {}
    for spec in (*specs, PartitionSpec(HostPartitionRule(), HOST)):
        device = devices.get(spec.backend)
        found.extend(c for c in spec.candidates(graph) if device is None or fits(c, device))
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
        places = sorted({graph.nodes[i].place for i in missing} - {""})
        where = f" on {' and '.join(places)}, where the module wants it" if places else ""
        raise NoCoverError(f"no backend can run {names}{more}{where}: add one that can (`collage backends` lists them)")
