"""Genome: a placement as a row of preferences, one per group of nodes (the PACT'22 paper's second level, unlimited).

The paper has one bit per group: whether the graph backend takes it. Here a gene holds a backend, any that takes some
node of the group, and a *link*: whether the group is in one partition with the group that it reads from. Backends say
what runs where, links how large partitions are. Either may be left free; then costs decide.

A group is an anchor (a convolution, a matmul, a reduction) with the light operators that follow it, which is nearly
what every backend fuses. Preferences may contradict each other, or be impossible. `searchers.evolution.cover_finder`
finds the cover that meets most of them, so every genome stands for a legal cover and nothing has to be repaired.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.kinds import NodeKind, OpKind

#: The gene's backend when costs may decide.
ANY = ""


class Link(IntEnum):
    """Whether a group prefers to share a partition with the group it reads from."""

    ANY = 0
    JOINED = 1
    CUT = 2


class Gene(NamedTuple):
    """A group's preferences: a backend's name or `ANY`, and the link to the group that it reads from."""

    backend: str
    link: Link


Genome = tuple[Gene, ...]


@dataclass(frozen=True)
class Group:
    """What one gene decides on.

    Attributes
    ----------
    nodes
        Bit set of node indices.
    backends
        Those that take some node of the group, sorted.
    source
        The last node of another group that the group reads, and the node that reads it; None where there is none.
    """

    nodes: int
    backends: tuple[str, ...]
    source: tuple[int, int] | None


def make_groups(graph: DataflowGraph, candidates: Iterable[CandidatePartition]) -> tuple[Group, ...]:
    """Split the coverable nodes into groups, in topological order.

    A network without a single heavy operator has one group per call.
    """
    coverable = set(graph.coverable)
    nodes = [graph.nodes[i] for i in graph.coverable]
    calls = [node for node in nodes if node.kind is NodeKind.CALL]
    heavy = {n.index for n in calls if n.op_kind >= OpKind.REDUCTION} or {n.index for n in calls}
    owner: dict[int, int] = {}
    members: list[int] = []
    sources: list[tuple[int, int] | None] = []
    for node in nodes:
        reads = [i for i in node.inputs if i in coverable]
        if node.index not in heavy and reads:
            owner[node.index] = owner[max(reads)]
            members[owner[node.index]] |= 1 << node.index
        else:
            owner[node.index] = len(members)
            members.append(1 << node.index)
            sources.append((max(reads), node.index) if reads else None)
    reach: dict[str, int] = {}
    for candidate in candidates:
        if candidate.backend != HOST:
            reach[candidate.backend] = reach.get(candidate.backend, 0) | candidate.sub_graph.inside.bits
    return tuple(
        Group(bits, tuple(sorted(name for name, taken in reach.items() if taken & bits)), source)
        for bits, source in zip(members, sources, strict=True)
    )


def encode(groups: Sequence[Group], cover: Iterable[CandidatePartition]) -> Genome:
    """The preferences that a cover meets: of each group the backend that runs most of its nodes, and its link."""
    covers = list(cover)
    owner = {node: i for i, candidate in enumerate(covers) for node in candidate.sub_graph.inside}
    genes = []
    for group in groups:
        taken = {name: 0 for name in group.backends}
        for candidate in covers:
            if candidate.backend in taken:
                taken[candidate.backend] += (candidate.sub_graph.inside.bits & group.nodes).bit_count()
        most = max(sorted(taken), key=lambda name: taken[name], default=ANY)
        link = Link.ANY
        if group.source is not None:
            link = Link.JOINED if owner[group.source[0]] == owner[group.source[1]] else Link.CUT
        genes.append(Gene(most if taken.get(most) else ANY, link))
    return tuple(genes)


def cross(first: Genome, second: Genome, rng: random.Random) -> tuple[Genome, Genome]:
    """Two-point crossover: the genes between two points change places."""
    begin, end = sorted(rng.randint(0, len(first)) for _ in range(2))
    return (
        first[:begin] + second[begin:end] + first[end:],
        second[:begin] + first[begin:end] + second[end:],
    )


def mutate(genome: Genome, groups: Sequence[Group], rate: float, rng: random.Random) -> Genome:
    """Each gene changes with probability `rate`: its backend or its link becomes another of those it can be."""
    return tuple(
        _changed(gene, group, rng) if rng.random() < rate else gene for gene, group in zip(genome, groups, strict=True)
    )


def _changed(gene: Gene, group: Group, rng: random.Random) -> Gene:
    if group.source is not None and rng.random() < 0.5:
        return gene._replace(link=rng.choice([link for link in Link if link is not gene.link]))
    others = [name for name in (ANY, *group.backends) if name != gene.backend]
    return gene._replace(backend=rng.choice(others)) if others else gene
