"""What a summary says, as data: the table and the web page both show it.

Equal partitions (same backend, operators and costs: they share one measurement) become one row, wherever they stand:
networks repeat their blocks, and a reader wants to see a block once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from collage.confirm.confirmation import SEARCHED
from collage.cost.cost import Cost
from collage.graph.candidates import HOST
from collage.measure.statistics import TIE
from collage.planned.data import PlanData, PlannedPartition


@dataclass(frozen=True)
class PartitionRow:
    """Equal partitions.

    Attributes
    ----------
    positions
        Where they stand among the partitions, in execution order, from 1.
    backend
        Who runs them, which libraries it calls, and how many products of it are in eight bits.
    operators
        Shortened, for people.
    cost
        Of one of them.
    share
        Of all of them together, in the sum over all partitions; NaN when a cost is not known.
    runner_up, margin
        The next best backend on the same nodes, and how much slower it is; "" and NaN without one.
    """

    positions: tuple[int, ...]
    backend: str
    operators: str
    cost: Cost
    share: float
    runner_up: str
    margin: float


@dataclass(frozen=True)
class ContestantRow:
    """One contestant end to end.

    Attributes
    ----------
    name
        Its name.
    latency
        Of one call.
    percentile
        Seconds: the 95th percentile of its calls; None where it was not run often.
    ratio
        To what ships, with the 95% interval.
    remark
        Whether it ships, cannot ship, or why it was not run to the end.
    """

    name: str
    latency: Cost
    percentile: float | None
    ratio: tuple[float, float, float] | None
    remark: str


def partition_rows(plan: PlanData, width: int = 48) -> list[PartitionRow]:
    """The partitions that backends run, equal ones together, in the order of their first appearance."""
    partitions = [p for p in plan.partitions if p.backend != HOST]
    total = sum(p.cost.seconds for p in partitions)
    groups: dict[object, list[int]] = {}
    for position, partition in enumerate(partitions):
        groups.setdefault(_identity(partition), []).append(position)
    rows = []
    for positions in groups.values():
        first = partitions[positions[0]]
        rows.append(
            PartitionRow(
                positions=tuple(position + 1 for position in positions),
                backend=_backend_text(first),
                operators=shorten(first.operators, width),
                cost=first.cost,
                share=len(positions) * first.cost.seconds / total if total > 0 else math.nan,
                runner_up=first.runner_up,
                margin=first.margin,
            )
        )
    return rows


def _backend_text(partition: PlannedPartition) -> str:
    int8 = f", {partition.int8} int8" if partition.int8 else ""
    called = f", calls {' and '.join(partition.called)}" if partition.called else ""
    return f"{partition.backend}{called}{int8}"


def _identity(partition: PlannedPartition) -> object:
    labels = tuple(label for label, _ in partition.composites)
    return (
        *(partition.backend, partition.operators, labels, partition.int8, partition.runner_up),
        *(repr(partition.cost), repr(partition.runner_up_cost)),  # as texts: an unknown cost differs from itself
    )


#: Of the table of copies between devices: names, and whether cells are numbers.
COPY_COLUMNS = (
    ("from", False),
    ("to", False),
    ("value", False),
    ("each, bytes", True),
    ("each, ms", True),
    ("times", True),
)


def copy_rows(plan: PlanData) -> list[tuple[str, ...]]:
    """The cells of that table: equal copies together, in the order of their first appearance."""
    counted = Counter((c.source, c.target, c.operator, c.nbytes, c.seconds) for c in plan.copies)
    return [
        (source, target, short_name(op), f"{size:,}", f"{seconds * 1e3:.4g}", f"×{times}" if times > 1 else "")
        for (source, target, op, size, seconds), times in counted.items()
    ]


def copies_text(plan: PlanData) -> str:
    """How many copies there are, of how many bytes, and what they take; "" where there are none."""
    if not plan.copies:
        return ""
    size, seconds = sum(c.nbytes for c in plan.copies), sum(c.seconds for c in plan.copies)
    count = f"{len(plan.copies)} {'copy' if len(plan.copies) == 1 else 'copies'}"
    return f"Between devices: {count}, {size:,} bytes, {seconds * 1e3:.4g} ms in the sum"


def host_operators(plan: PlanData) -> str:
    """The nodes that stay on the virtual machine, counted by operator; "" when there are none."""
    names = [short_name(op) for p in plan.partitions if p.backend == HOST for op in p.operators]
    return ", ".join(_counted(names)) if names else ""


def contestant_rows(plan: PlanData) -> list[ContestantRow]:
    """All who were run end to end, fastest first, those that failed last."""
    if plan.confirmation is None:
        return []
    rows = []
    final = any(c.fresh for c in plan.confirmation.contestants)  # there was none in plans of old
    for c in plan.confirmation.contestants:
        remark = "ships" if c.name == plan.confirmation.shipped else "its own API" if c.rival else ""
        if not c.latency.is_finite:
            remark = c.latency.reason or "failed"
        elif c.latency.reason.startswith("stopped early"):
            remark = c.latency.reason
        elif final and not c.fresh:
            remark = ", ".join(text for text in (remark, "left before the final") if text)
        rows.append(ContestantRow(c.name, c.latency, c.percentile, c.ratio, remark))
    return sorted(rows, key=_order)


#: Of the table of plans for several shapes: names, and whether cells are numbers.
SHAPE_COLUMNS = (
    ("shapes", False),
    ("ships", False),
    ("backends", False),
    ("end to end, ms", True),
    ("batch", True),
    ("samples per second", True),
)


def shape_row(plan: PlanData) -> tuple[str, ...]:
    """The cells of a plan in that table."""
    backends = sorted({p.backend for p in plan.partitions if p.backend != HOST})
    seconds = plan.latency.seconds
    rate = plan.batch / seconds if plan.latency.is_finite and seconds > 0 else math.nan
    throughput = f"{rate:,.0f}" if rate >= 1e3 else f"{rate:.4g}" if rate > 0 else ""
    return (
        *(shapes_text(plan), plan.choice, ", ".join(backends) or "tvm"),
        *(milliseconds(plan.latency) if plan.latency.is_finite else "not run", str(plan.batch), throughput),
    )


def shapes_text(plan: PlanData) -> str:
    """The shapes of a plan's inputs, as on the command line."""
    return " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in plan.inputs.items())


def _order(row: ContestantRow) -> tuple[float, float]:
    """By ratios, which are of the same rounds, then by latencies."""
    return (row.ratio[0] if row.ratio else math.inf, row.latency.seconds if row.latency.is_finite else math.inf)


def warning(plan: PlanData) -> str:
    """That a rival is faster than all that can ship, with its ratio; "" when none is."""
    rival = plan.confirmation.faster_rival if plan.confirmation is not None else None
    if rival is None or rival.ratio is None:
        return ""
    low, high = sorted(1.0 / bound for bound in rival.ratio[1:])
    return (
        f"{rival.name} is faster than all that Collage can ship here: {1.0 / rival.ratio[0]:.2f} times as fast "
        f"({low:.2f} to {high:.2f})"
    )


def verdict(plan: PlanData) -> str:
    """Which plan ships, and why, in one sentence."""
    if plan.confirmation is None:
        return f"{plan.choice} ships, unconfirmed: it was not run end to end against the baselines"
    rivals = {c.name for c in plan.confirmation.contestants if c.rival}
    plans = [row for row in contestant_rows(plan) if row.latency.is_finite and row.name not in rivals]
    shipped, fastest = plan.choice, plans[0]
    ratios = {row.name: row.ratio[0] for row in plans if row.ratio is not None}
    if len(plans) == 1:
        return f"{shipped} ships: the only plan that runs and gives the right numbers"
    if shipped == fastest.name:
        if shipped == SEARCHED or SEARCHED not in ratios:
            return f"{shipped} ships: the fastest of {len(plans)} plans"
        return (
            f"{shipped} ships: end to end the searched plan takes {percent(ratios[SEARCHED] - 1.0, signed=False)} more"
        )
    gain = 1.0 / ratios[fastest.name] - 1.0
    why = "counts as a tie" if gain <= TIE else "is within the uncertainty of the measurement"
    return f"{shipped} ships: {fastest.name} is faster by {percent(gain, signed=False)}, which {why}"


def shorten(operators: Sequence[str], width: int = 48) -> str:
    """`conv2d+add+relu`; where that is longer than `width`, the number of operators and how many there are of each."""
    names = [short_name(op) for op in operators]
    chain = "+".join(_times(name, len(list(run))) for name, run in groupby(names))
    if len(chain) <= width:
        return chain
    text = f"{len(names)} operators:"
    counts = _counted(names)
    for number, part in enumerate(counts):
        longer = f"{text} {part}," if number < len(counts) - 1 else f"{text} {part}"
        if len(longer) > width - 2 and number:
            return f"{text} …"
        text = longer
    return text


def short_name(operator: str) -> str:
    """`relax.nn.conv2d` -> `conv2d`."""
    return operator.removeprefix("relax.").removeprefix("nn.")


def _counted(names: Sequence[str]) -> list[str]:
    return [_times(name, count) for name, count in Counter(names).most_common()]


def _times(name: str, count: int) -> str:
    return f"{name}×{count}" if count > 1 else name


def positions(numbers: Sequence[int], limit: int = 14) -> str:
    """`1`, `3-5`, `2,4,6,…`: at most `limit` characters or so."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    text = ",".join(parts)
    if len(text) <= limit:
        return text
    kept = parts[:1]
    while len(",".join([*kept, parts[len(kept)]])) <= limit - 2:
        kept.append(parts[len(kept)])
    return ",".join([*kept, "…"])


def milliseconds(cost: Cost) -> str:
    """`1.234 ± 0.005` in milliseconds; `invalid`, `unknown`."""
    return str(cost).replace(" ms", "") if cost.is_finite else str(cost)


def percent(ratio: float, signed: bool = True) -> str:
    """`+2.4%`, and `×3.5` for what is more than twice as much; "" when there is no number."""
    if not math.isfinite(ratio):
        return ""
    if signed and ratio > 1.0:
        return f"×{1.0 + ratio:.3g}"
    return f"{ratio:+.1%}" if signed else f"{ratio:.1%}"
