"""Transitions at the borders of each partition: which neighbours of other backends hand tensors over, at what charge.

As `collage.search.hand_over` charges them, but by partition: what a node on the host hands on comes from the partitions
that it reads.
"""

from __future__ import annotations

import math
import re
from typing import Any

from collage.graph.candidates import HOST
from collage.planned.data import PlanData

_TENSOR = re.compile(r"[a-z]+(\d+)[^\[(]*\[([\d,]*)\]")


def borders(plan: PlanData) -> list[list[dict[str, Any]]]:
    """For each partition, the hand-overs into it: the number of the producer, its backend, bytes, and the charge in
    milliseconds; empty where the plan has no graph.
    """
    graph, parts = plan.graph, plan.partitions
    found: list[list[dict[str, Any]]] = [[] for _ in parts]
    if graph is None:
        return found
    owner = {node: number for number, part in enumerate(parts) for node in part.nodes}
    charges = {(t.producer, t.consumer): t.transition for t in plan.transitions}
    #: what each partition on the host hands on, and each other one: itself
    origins: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        read: dict[int, set[int]] = {}
        for node in part.nodes:
            for source in graph.nodes[node].inputs:
                if owner.get(source, number) != number:
                    read.setdefault(owner[source], set()).add(source)
        origins[number] = [number] if part.backend != HOST else _origins(read, origins)
        for neighbour, nodes in sorted(read.items()):
            for producer in origins.get(neighbour, ()):
                if HOST in (part.backend, parts[producer].backend) or parts[producer].backend == part.backend:
                    continue
                size = sum(bytes_of(graph.nodes[node].type) for node in nodes)
                charge = charges.get((parts[producer].backend, part.backend))
                found[number].append(
                    {
                        "producer": producer,
                        "backend": parts[producer].backend,
                        "bytes": size,
                        "ms": None if charge is None else float(f"{charge.seconds(size) * 1e3:.4g}"),
                    }
                )
    return found


def _origins(read: dict[int, set[int]], origins: dict[int, list[int]]) -> list[int]:
    return list(dict.fromkeys(origin for source in sorted(read) for origin in origins.get(source, ())))


def bytes_of(type_text: str) -> int:
    """Of a value of this type, as `PlannedNode.type` writes it; symbolic extents count as nothing."""
    total = 0
    for bits, shape in _TENSOR.findall(type_text):
        extents = [int(extent) for extent in shape.split(",") if extent]
        total += math.prod(extents) * -(-int(bits) // 8)
    return total
