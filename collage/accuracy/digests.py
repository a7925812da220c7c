"""Digests of what errors depend on beside structure: a network's weights, and samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from collage.frontend.values import value_of
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash


def weights_digest(module: Any, graph: DataflowGraph) -> str:
    """Digest of a network's structure and weights."""
    weights = (value_of(graph.nodes[index].expr) for index in graph.constants)
    return arrays_digest(structure_hash(describe_module(module)), (w for w in weights if w is not None))


def arrays_digest(told: str, arrays: Iterable[np.ndarray]) -> str:
    """Digest of a text and of arrays in order, their types and shapes included."""
    digest = hashlib.sha256(told.encode())
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
