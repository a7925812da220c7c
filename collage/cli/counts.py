"""How many records of each kind a database has, and what came of a run: "512 candidates, 6 transitions"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from collage.records import RecordDatabase

_NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "candidate": ("candidate", "candidates"),
        "transition": ("transition", "transitions"),
        "plan": ("plan end to end", "plans end to end"),
    }
)


def counted(database: RecordDatabase) -> dict[str, int]:
    """Kind -> number of records."""
    return database.stats().by_kind


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What was added, in words; "nothing" when nothing was."""
    added = {kind: after[kind] - before.get(kind, 0) for kind in sorted(after)}
    words = [f"{count:,} {_name(kind, count)}" for kind, count in added.items() if count > 0]
    return ", ".join(words) or "nothing"


def _name(kind: str, count: int) -> str:
    singular, plural = _NAMES.get(kind, (kind, kind))
    return singular if count == 1 else plural
