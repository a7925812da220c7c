"""The summary of a plan as one web page that needs nothing from anywhere else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from collage.errors import CollageError
from collage.graph.candidates import HOST
from collage.planned.data import PlanData
from collage.report.accuracy import FRONTIER_COLUMNS, accuracy_text, frontier_rows
from collage.report.facts import (
    COPY_COLUMNS,
    SHAPE_COLUMNS,
    contestant_rows,
    copies_text,
    copy_rows,
    host_operators,
    milliseconds,
    partition_rows,
    percent,
    positions,
    shape_row,
    shapes_text,
    shorten,
    verdict,
    warning,
)
from collage.report.summary import ratio_texts, seconds_text, whole_lines

#: Colours that people with colour blindness can tell apart (Okabe and Ito), with black or white text.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .25em .8em; text-align: left }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd } .n { text-align: right; white-space: nowrap }
.verdict { background: #e8f5ee; border-left: 4px solid #009e73; padding: .6em 1em }
.strip { display: flex; height: 2.2em; margin: 1em 0; border: 1px solid #888 } .strip div { min-width: 1px }
.key { display: inline-block; width: .9em; height: .9em; margin: 0 .35em 0 1em; vertical-align: -.1em }
.bar { background: #bbb; height: .8em } .ships .bar { background: #009e73 } .ships { font-weight: 600 }
"""


def write_html(plans: PlanData | Sequence[PlanData], path: Path, title: str) -> None:
    """Write the page of a plan, or of plans for several shapes.

    Raises
    ------
    CollageError
        The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_html(plans, title), encoding="utf-8")
    except OSError as error:
        raise CollageError(f"{path}: cannot write the report: {error.strerror or error}") from error


def to_html(plans: PlanData | Sequence[PlanData], title: str) -> str:
    """The page. Every text that comes from a network or a backend is escaped."""
    shown = [plans] if isinstance(plans, PlanData) else list(plans)
    parts = [f"<h1>{escape(title)}</h1>"]
    if len(shown) > 1:
        parts.append(_table([name for name, _ in SHAPE_COLUMNS], map(shape_row, shown), numbers=(3, 4, 5)))
    for plan in shown:
        parts += [f"<h1>{escape(shapes_text(plan))}</h1>"] if len(shown) > 1 else []
        parts += _sections(plan)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _sections(plan: PlanData) -> list[str]:
    return [
        *(f"<p><strong>{escape(line)}</strong></p>" for line in [warning(plan)] if line),
        f'<p class="verdict">{escape(verdict(plan))}</p>',
        "<h2>End to end</h2>",
        _table(("", "ms"), whole_lines(plan), numbers=(1,)),
        _contestants(plan),
        *_accuracy(plan),
        "<h2>What runs where</h2>",
        _strip(plan),
        _partitions(plan),
        *(
            f"<p>On the virtual machine, without a kernel: {escape(host)}</p>"
            for host in [host_operators(plan)]
            if host
        ),
        *_copies(plan),
        *(f"<p>Note: {escape(note)}</p>" for note in plan.notes),
        f"<p>{escape(_provenance(plan))}</p>",
    ]


def _copies(plan: PlanData) -> list[str]:
    if not plan.copies:
        return []
    numbers = [i for i, (_, right) in enumerate(COPY_COLUMNS) if right]
    table = _table([name for name, _ in COPY_COLUMNS], copy_rows(plan), numbers)
    return [f"<p>{escape(copies_text(plan))}</p>", table]


def _accuracy(plan: PlanData) -> list[str]:
    if plan.accuracy is None:
        return []
    numbers = [i for i, (_, right) in enumerate(FRONTIER_COLUMNS) if right]
    table = _table([name for name, _ in FRONTIER_COLUMNS], frontier_rows(plan), numbers)
    return ["<h2>Within the error budget</h2>", f"<p>{escape(accuracy_text(plan.accuracy))}</p>", table]


def _partitions(plan: PlanData) -> str:
    header = ("#", "backend", "operators", "each, ms", "times", "share", "runner-up", "margin")
    rows = [
        (
            *(positions(row.positions, limit=60), row.backend, row.operators, milliseconds(row.cost)),
            *(str(len(row.positions)), percent(row.share, signed=False), row.runner_up or "-", percent(row.margin)),
        )
        for row in partition_rows(plan, width=160)
    ]
    return _table(header, rows, numbers=(3, 4, 5, 7))


def _contestants(plan: PlanData) -> str:
    rows = contestant_rows(plan)
    if not rows:
        return ""
    longest = max((row.latency.seconds for row in rows if row.latency.is_finite), default=math.inf)
    lines = []
    for row in rows:
        ratio, interval = ratio_texts(row.ratio)
        length = 100.0 * row.latency.seconds / longest if row.latency.is_finite else 0.0
        css = ' class="ships"' if row.remark == "ships" else ""
        cells = [
            f"<td>{escape(row.name)}</td>",
            f'<td class="n">{escape(milliseconds(row.latency))}</td>',
            f'<td style="width:14em"><div class="bar" style="width:{length:.1f}%"></div></td>',
            f'<td class="n">{seconds_text(row.percentile)}</td>',
            f'<td class="n">{ratio}</td><td class="n">{interval}</td><td>{escape(row.remark)}</td>',
        ]
        lines.append(f"<tr{css}>{''.join(cells)}</tr>")
    names = ("plan", "end to end, ms", "", "95th percentile", "ratio", "95% interval", "")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _strip(plan: PlanData) -> str:
    """The partitions in execution order, each as wide as its share of the sum, coloured by backend."""
    partitions = [p for p in plan.partitions if p.backend != HOST and p.cost.is_finite]
    colours = dict(zip(sorted({p.backend for p in partitions}), _COLOURS * len(partitions), strict=False))
    if not partitions:
        return ""
    blocks = []
    for number, p in enumerate(partitions, start=1):
        tip = escape(f"{number}: {p.backend}, {shorten(p.operators, 80)}, {milliseconds(p.cost)} ms", quote=True)
        width = max(p.cost.seconds, 1e-9) * 1e6
        blocks.append(f'<div title="{tip}" style="flex:{width:.4f} 1 0;background:{colours[p.backend]}"></div>')
    keys = "".join(f'<span class="key" style="background:{c}"></span>{escape(name)}' for name, c in colours.items())
    return f'<div class="strip">{"".join(blocks)}</div><p>{keys}</p>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        css = [' class="n"' if i in numbers else "" for i in range(len(values))]
        return "".join(f"<{tag}{c}>{escape(v)}</{tag}>" for c, v in zip(css, values, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><tr>{cells('th', header)}</tr>{body}</table>"


def _provenance(plan: PlanData) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in plan.versions.items())
    return f"{plan.threads} threads; {versions}; {plan.searcher}, {plan.estimator}; network {plan.network[:12]}"
