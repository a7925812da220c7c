"""Names of the parts of a cost model: one per backend, and further ones for variants of a backend.

Products in eight bits, and native partitions that call libraries, have a part of their own, because the latency of a
backend with them says little of its latency without. A part without records knows nothing. The precision that a backend
has by itself is part of its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from collage.annotations.precision import INT8
from collage.cost.estimator import Workload
from collage.records import Record

# No name of a backend has a plus.
_IN_INT8, _CALLING = f"+{INT8}", "+libraries"


def model_name(item: Workload | Record) -> str:
    """The name of the model of a workload, or of that of a record."""
    if isinstance(item, Record):
        return _name(item.key.backend, [label for label, _ in item.key.composites])
    return _name(item.backend.name, [label for label, _ in item.composites])


def is_variant(name: str) -> bool:
    """Whether it is not of what a backend takes by itself, in its own precision."""
    return "+" in name


def _name(backend: str, labels: Sequence[str]) -> str:
    if INT8 in labels:
        return f"{backend}{_IN_INT8}"
    return f"{backend}{_CALLING}" if any(":" in label for label in labels) else backend
