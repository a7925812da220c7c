"""The summary of a plan as a fragment of HTML without scripts, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from collage.planned.data import PlanData
from collage.report.facts import contestant_rows, milliseconds, partition_rows, percent, shapes_text, warning
from collage.report.headline import headline
from collage.report.summary import ratio_texts


def to_fragment(*plans: PlanData) -> str:
    """What a notebook shows of a plan, or of plans for several shapes. Every text is escaped."""
    return f"<div>{''.join(map(_fragment, plans))}</div>"


def _fragment(plan: PlanData) -> str:
    lines = [line for line in (shapes_text(plan), warning(plan), *headline(plan)) if line]
    contest = [
        (row.name, milliseconds(row.latency), *ratio_texts(row.ratio), row.remark) for row in contestant_rows(plan)
    ]
    partitions = [
        (row.backend, row.operators, milliseconds(row.cost), str(len(row.positions)), percent(row.share, signed=False))
        for row in partition_rows(plan)
    ]
    return (
        "".join(f"<p>{escape(line)}</p>" for line in lines)
        + _table("The contest", ("plan", "end to end, ms", "ratio", "95% interval", ""), contest)
        + _table("What runs where", ("backend", "operators", "each, ms", "times", "share"), partitions)
    )


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return (
        f"<details><summary>{escape(title)}</summary><table><thead><tr>{_cells('th', header)}</tr></thead>"
        f"<tbody>{body}</tbody></table></details>"
    )


def _cells(tag: str, values: Iterable[str]) -> str:
    return "".join(f'<{tag} style="text-align:left">{escape(value)}</{tag}>' for value in values)
