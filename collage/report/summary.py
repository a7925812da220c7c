"""The summary of a plan: what runs where, at what cost, and why, as a table for a terminal or a log file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from collage.confirm.confirmation import SEARCHED
from collage.planned.data import PlanData, PlanRound
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
    verdict,
    warning,
)
from collage.report.headline import headline

_WIDTH = 100


def summarise(*plans: PlanData, details: bool = True) -> str:
    """The summary as plain text of at most 100 columns, without colours. Of several plans, which are for several
    shapes, there is a table first. Without `details` it says what ships, against whom, and what is to be known of it.
    """
    text = io.StringIO()
    Console(file=text, width=_WIDTH, color_system=None, legacy_windows=False).print(render(*plans, details=details))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def print_summary(*plans: PlanData, details: bool = True) -> None:
    """Print the summary: with colours on a terminal, as plain text elsewhere."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(render(*plans, details=details))
    else:
        print(summarise(*plans, details=details))


def render(*plans: PlanData, details: bool = True) -> RenderableType:
    """The summary as something that rich prints."""
    if len(plans) == 1:
        return Group(*_parts(plans[0], details))
    return Group(
        _table(SHAPE_COLUMNS, map(shape_row, plans)), *(part for plan in plans for part in _titled_parts(plan, details))
    )


def _titled_parts(plan: PlanData, details: bool) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(f"{shapes_text(plan)}", style="bold reverse")
    yield from _parts(plan, details)


def _table(columns: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> Table:
    """With these columns, each a name and whether cells are numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _parts(plan: PlanData, details: bool) -> Iterator[RenderableType]:
    if slower := warning(plan):
        yield Text(slower, style="bold red")
    ships, *rest = headline(plan)
    yield Text(ships, style="bold green")
    yield from map(Text, rest)
    if plan.confirmation is not None:
        yield Text("")
        yield _contestant_table(plan)
    if plan.accuracy is not None:
        yield Text("")
        yield Text("Within the error budget", style="bold")
        yield Text(accuracy_text(plan.accuracy))
        if plan.frontier and details:
            yield _table(FRONTIER_COLUMNS, frontier_rows(plan))
    if details:
        yield Text("")
        yield from _placement(plan)
        yield Text("")
        yield Text("The whole, in ms", style="bold")
        yield _whole_table(plan)
    yield Text("")
    yield Text(verdict(plan), style="bold green")
    for note in plan.notes:
        yield Text(f"Note: {note}")


def _placement(plan: PlanData) -> Iterator[RenderableType]:
    rows = partition_rows(plan)
    count = sum(len(row.positions) for row in rows)
    what = _number(count, "partition") if rows else "the whole network is built by TVM alone"
    yield Text(f"What runs where ({plan.choice}): {what}, {_number(plan.threads, 'thread')}", style="bold")
    if rows:
        yield _partition_table(plan)
    if host := host_operators(plan):
        yield Text(f"On the virtual machine, without a kernel: {host}")
    if plan.copies:
        yield Text("")
        yield Text(copies_text(plan), style="bold")
        yield _table(COPY_COLUMNS, copy_rows(plan))


def _partition_table(plan: PlanData) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("#", overflow="fold")
    table.add_column("backend", style="cyan", overflow="fold")
    table.add_column("operators", overflow="fold")
    table.add_column("each, ms", justify="right", no_wrap=True)
    table.add_column("times", justify="right")
    table.add_column("share", justify="right")
    table.add_column("runner-up", overflow="fold")
    for row in partition_rows(plan, width=31):
        cells = (
            positions(row.positions, limit=12),
            row.backend,
            row.operators,
            milliseconds(row.cost),
            f"×{len(row.positions)}" if len(row.positions) > 1 else "",
            percent(row.share, signed=False),
            f"{row.runner_up or '-'} {percent(row.margin)}".strip(),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _whole_table(plan: PlanData) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("what")
    table.add_column("value")
    for what, value in whole_lines(plan):
        table.add_row(Text(what), Text(value))
    return table


def whole_lines(plan: PlanData) -> list[tuple[str, str]]:
    """(what, value) of the searched plan as a whole, and what is lost."""
    lines = [("sum of costs, as searched", f"{milliseconds(plan.searched_cost)}{_bound(plan)}")]
    if greedy := percent(plan.greedy_loss):
        lines.append(("a greedy placement instead", f"{greedy} by the costs of the first search"))
    if plan.batch > 1 and plan.latency.is_finite:
        lines.append(("throughput", f"{shape_row(plan)[-1]} samples per second, in batches of {plan.batch}"))
    if plan.confirmation is not None:
        searched = next((c for c in plan.confirmation.contestants if c.name == SEARCHED), None)
        if searched is not None:
            lines.append(("end to end, as searched", milliseconds(searched.latency)))
            lines.append(("sum of its parts inside the whole", f"{milliseconds(plan.corrected_cost)} (of its own run)"))
        alone = f"; {percent(plan.isolated_error)} of the parts alone" if percent(plan.isolated_error) else ""
        lines.append(("additive error, predicted before its run", (percent(plan.additive_error) or "unknown") + alone))
        if len(plan.rounds) > 1:
            lines.append(("searched and run", "; ".join(map(_round, plan.rounds))))
            errors = ", ".join(map(percent, plan.corrected_errors)) or "unknown"
            lines.append(("end to end over corrected sums", errors))
        lines.append(("apparent loss", percent(plan.apparent_loss) or "unknown"))
        if plan.confirmation.disturbed > 0:
            share = percent(plan.confirmation.disturbed, signed=False)
            lines.append(("rounds on a disturbed machine", share))
    return lines


def _round(found: PlanRound) -> str:
    """`4 partitions: 4.35 -> 4.27 ms`: the sum that it was found with, and the latency end to end."""
    sum_ms = f"{found.searched * 1e3:.4g}"
    return f"{_number(found.partitions, 'partition')}: sum {sum_ms}, end to end {milliseconds(found.latency)}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _bound(plan: PlanData) -> str:
    """How good the search says that its answer is."""
    cost = plan.searched_cost.seconds
    if not plan.searched_cost.is_finite or plan.lower_bound <= 0:
        return ""
    gap = max(0.0, 1.0 - plan.lower_bound / cost) if cost > 0 else 0.0
    return " (no cover has a smaller sum)" if gap < 5e-4 else f" (the smallest sum is at most {gap:.1%} below)"


def _contestant_table(plan: PlanData) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("plan", overflow="fold")
    table.add_column("end to end, ms", justify="right", no_wrap=True)
    table.add_column("95th\npercentile", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("95% interval", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in contestant_rows(plan):
        ratio, interval = ratio_texts(row.ratio)
        style = "bold green" if row.remark == "ships" else ""
        cells = (row.name, milliseconds(row.latency), seconds_text(row.percentile), ratio, interval, row.remark)
        table.add_row(*(Text(cell) for cell in cells), style=style)
    return table


def seconds_text(seconds: float | None) -> str:
    """In milliseconds; "" when there is none."""
    return "" if seconds is None else f"{seconds * 1e3:.4g}"


def ratio_texts(ratio: tuple[float, float, float] | None) -> tuple[str, str]:
    """A ratio to the plan that ships, and its interval; empty when there is none."""
    return ("", "") if ratio is None else (f"{ratio[0]:.3f}", f"{ratio[1]:.3f} to {ratio[2]:.3f}")
