"""Hand-overs: the tensors of a cover that pass from a partition of one backend to one of another.

Transitions are charged by them: a latency for every ordered pair of neighbouring partitions, and a share for every byte
of the tensors that the consumer reads from the producer, each tensor once. A node on the host runs on no backend and
hands on what it reads. So its readers are charged for the partitions that it reads, and for those that nodes on the
host before it read. Reading is free for the node itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collage.graph.candidates import HOST, CandidatePartition, quotient_of

#: Backend of the producer, that of the consumer, and the nodes whose values pass.
HandOver = tuple[str, str, tuple[int, ...]]


def hand_overs(chosen: Sequence[CandidatePartition]) -> Iterator[HandOver]:
    """Yield those of an acyclic cover between different backends, in an order that is the same for equal covers."""
    quotient = quotient_of(chosen)
    owner = {node: group for group, candidate in enumerate(chosen) for node in candidate.sub_graph.inside}
    #: per group, the backends whose results it hands on
    origins: dict[int, tuple[str, ...]] = {}
    for group in quotient.order:
        consumer = chosen[group].backend
        if consumer == HOST:
            origins[group] = tuple(backend for source in quotient.inputs[group] for backend in origins[source])
            continue
        origins[group] = (consumer,)
        read: dict[int, list[int]] = {}
        for node in chosen[group].sub_graph.boundary.inputs:
            if node in owner:
                read.setdefault(owner[node], []).append(node)
        for source, nodes in sorted(read.items()):
            for producer in origins[source]:
                if producer != consumer:
                    yield producer, consumer, tuple(nodes)
