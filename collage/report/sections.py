"""Sections of a page: texts, charts and tables as data, which the page draws (`page/src/sections.ts` has the types).

Names and labels are data, which the page shows as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

#: A section, a chart or a table, JSON-ready.
Drawn = dict[str, Any]


class Point(NamedTuple):
    """A point of a scatter: what was measured, what was predicted with the ends of its interval, the number of its
    group, and what a reader is told of it.
    """

    measured: float
    predicted: float
    low: float
    high: float
    group: int
    about: str


class Range(NamedTuple):
    """A row of a chart of intervals."""

    name: str
    value: float
    low: float
    high: float
    group: int
    about: str


class Bar(NamedTuple):
    """A piece of a bar; pieces of one name stand one after the other."""

    name: str
    value: float
    group: int
    about: str


def section(
    id: str, title: str, *text: str, charts: Sequence[Drawn | None] = (), tables: Sequence[Drawn] = ()
) -> Drawn:
    """A section; texts that are empty, and charts that are None, are left out."""
    drawn = [chart for chart in charts if chart is not None]
    return {"id": id, "title": title, "text": [t for t in text if t], "charts": drawn, "tables": list(tables)}


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = (), fold: str = ""
) -> Drawn:
    """A table; `numbers` are columns that align right, and `fold` is what it is folded under, "" where it is not."""
    cells = [[str(cell) for cell in row] for row in rows]
    return {"columns": list(columns), "rows": cells, "numbers": list(numbers), "fold": fold}


def scatter(label: str, x: str, y: str, groups: Sequence[str], points: Sequence[Point]) -> Drawn | None:
    """Predicted against measured, on logarithmic scales; None of nothing."""
    drawn = [(*map(_short, point[:4]), *point[4:]) for point in points]
    return (
        {"kind": "scatter", "label": label, "x": x, "y": y, "groups": list(groups), "points": drawn} if drawn else None
    )


def intervals(label: str, x: str, groups: Sequence[str], rows: Sequence[Range]) -> Drawn | None:
    """Ratios with intervals around them, a row each, on a logarithmic scale; None of nothing."""
    drawn = [(row.name, *map(_short, row[1:4]), *row[4:]) for row in rows]
    return {"kind": "intervals", "label": label, "x": x, "groups": list(groups), "rows": drawn} if drawn else None


def curve(label: str, x: str, y: str, lines: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Drawn | None:
    """Lines between 0 and 1, beside the diagonal; None of nothing."""
    drawn = [{"name": name, "points": [(_short(a), _short(b)) for a, b in points]} for name, points in lines]
    return {"kind": "curve", "label": label, "x": x, "y": y, "lines": drawn} if drawn else None


def bars(label: str, x: str, groups: Sequence[str], found: Sequence[Bar]) -> Drawn | None:
    """Bars from the left to the right, in the order in which their names first occur; None of nothing."""
    drawn = [(bar.name, _short(bar.value), *bar[2:]) for bar in found if bar.value > 0]
    return {"kind": "bars", "label": label, "x": x, "groups": list(groups), "bars": drawn} if drawn else None


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spread over them."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
