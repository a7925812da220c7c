"""A backend that computes everything right and then spoils the last output: measuring has to find it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm

from collage.backends.base import Availability, Backend
from collage.rules.base import PartitionRule
from collage.runtime import engines


class CorruptedBackend(Backend):
    """Another graph-style backend, spoilt; it goes by that one's name."""

    style = "graph"
    engine = "collage.testing.corrupted:create"

    def __init__(self, original: Backend) -> None:
        self.original = original
        self.name = original.name  # type: ignore[misc]
        self.device = original.device  # type: ignore[misc]

    @property
    def tolerance(self) -> float:
        return self.original.tolerance

    def availability(self) -> Availability:
        return self.original.availability()

    def version(self) -> str:
        return f"{self.original.version()} corrupted"

    def rule(self) -> PartitionRule:
        return self.original.partition_rule

    def engine_blob(self, function: Any) -> bytes:
        return self.original.engine_blob(function)

    def engine_options(self, threads: int) -> dict[str, Any]:
        return {**self.original.engine_options(threads), "original": self.original.engine_name}


def create(blob: bytes, options: Mapping[str, Any]) -> Callable[..., None]:
    """The original's function, and one element of the last output changed."""
    right = engines.create(options["original"], blob, {k: v for k, v in options.items() if k != "original"})

    def run(*tensors: Any) -> None:
        right(*tensors)
        last = tvm.runtime.from_dlpack(tensors[-1])  # wherever it is
        values = last.numpy()
        flat = values.reshape(-1)
        flat[0] = not flat[0] if flat.dtype == bool else flat[0] + 1 + abs(flat).max()
        last.copyfrom(values)

    return run
