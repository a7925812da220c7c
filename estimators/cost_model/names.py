"""Under which name a cost model keeps what it learned: a backend's own, and another one with products in eight bits.

What a backend takes with them says little of what it takes without, so that each has a model of its own; a model that
has never seen them knows nothing of them. The precision that a backend has by itself is part of its name.
"""

from __future__ import annotations

from collections.abc import Iterable

from collage.annotations.precision import INT8
from collage.cost.estimator import Workload
from collage.records import Record

_IN_INT8 = f"+{INT8}"  # no name of a backend has a plus


def model_name(item: Workload | Record) -> str:
    """The name of the model of a workload, or of that of a record."""
    if isinstance(item, Record):
        return _name(item.key.backend, (label for label, _ in item.key.composites))
    return _name(item.backend.name, (label for label, _ in item.composites))


def in_int8(name: str) -> bool:
    """Whether it is of products in eight bits."""
    return name.endswith(_IN_INT8)


def _name(backend: str, labels: Iterable[str]) -> str:
    return f"{backend}{_IN_INT8}" if INT8 in labels else backend
