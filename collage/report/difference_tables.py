"""The difference of two plans as tables, for a terminal and for the page."""

from __future__ import annotations

import io
import math
from collections import Counter

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from collage.report.difference import Difference, Moved
from collage.report.facts import percent, shorten
from collage.report.sections import Drawn, section, table

FACTS = ("", "first", "second")
MOVED = ("operators", "times", "first", "second", "ms", "measurement that changed")


def headline_of(found: Difference) -> str:
    """How much moved, in a sentence."""
    count = sum(moved.times for moved in found.moved)
    kept = "1 partition stays as it is" if found.same == 1 else f"{found.same} partitions stay as they are"
    return f"Nothing moved: {kept}" if not count else f"{count} place{' differs' if count == 1 else 's differ'}; {kept}"


def moved_rows(found: Difference, width: int = 40) -> list[tuple[str, ...]]:
    """The cells of what moved."""
    return [
        (
            shorten(moved.operators, width),
            f"×{moved.times}" if moved.times > 1 else "",
            _backends(moved.before),
            _backends(moved.after),
            _costs(moved),
            moved.measurement,
        )
        for moved in found.moved
    ]


def difference_sections(found: Difference) -> list[Drawn]:
    """The sections of the page."""
    whole = section("facts", "What differs in the whole", tables=[table(FACTS, found.facts)])
    moved = section("moved", "What moved", tables=[table(MOVED, moved_rows(found, 160), [1])])
    return [part for part, shown in ((moved, found.moved), (whole, found.facts)) if shown]


def print_difference(found: Difference) -> None:
    """Print it: with colours on a terminal, as plain text of at most 100 columns elsewhere."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_render(found))
    else:
        print(difference_text(found))


def difference_text(found: Difference) -> str:
    """As plain text of at most 100 columns."""
    text = io.StringIO()
    Console(file=text, width=100, color_system=None, legacy_windows=False).print(_render(found))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _render(found: Difference) -> Group:
    parts: list[Text | Table] = [Text(headline_of(found), style="bold")]
    if found.facts:
        parts.append(_table(FACTS, found.facts))
    if found.moved:
        parts.append(_table(MOVED, moved_rows(found, 26)))
    return Group(*parts)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]] | tuple[tuple[str, ...], ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _backends(names: tuple[str, ...]) -> str:
    counts = Counter(names)
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items()) or "virtual machine"


def _costs(moved: Moved) -> str:
    if not math.isfinite(moved.before_s) or not math.isfinite(moved.after_s):
        return ""
    change = percent(moved.after_s / moved.before_s - 1.0) if moved.before_s > 0 else ""
    return f"{moved.before_s * 1e3:.4g} -> {moved.after_s * 1e3:.4g} {change}".strip()
