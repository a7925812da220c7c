"""What a plan says of its error budget, as data: the table and the web page both show it."""

from __future__ import annotations

from collage.planned.data import PlanData, PlannedAccuracy

#: Of the table of placements between the fastest and the most accurate one: names, and whether cells are numbers.
FRONTIER_COLUMNS = (
    ("error, predicted", True),
    ("held-out", True),
    ("at most", True),
    ("sum of costs, ms", True),
    ("least possible", True),
    ("partitions", True),
    ("backends", False),
)


def accuracy_text(found: PlannedAccuracy) -> str:
    """How a plan keeps its budget, in one sentence."""
    what = "drop of the metric" if found.metric else "error"
    kept = (
        f"{what} {found.measured:.3%}, at most {found.upper:.3%} (95%), on {found.samples} held-out samples"
        if found.upper or found.predicted
        else "float32 ships: no error is spent"
    )
    proof = ""
    if found.predicted and found.gap < 1.0:
        assumed = ", as far as predicted intervals hold" if found.assumes_intervals else ""
        proof = f"; any offered placement of this error costs at most {found.gap:.1%} less{assumed}"
    return f"granted {found.limit:.3%}; {kept}; {found.judged} placements were judged{proof}"


def frontier_rows(plan: PlanData) -> list[tuple[str, ...]]:
    """The cells of each placement, the most accurate one first."""
    return [
        (
            *(f"{point.predicted:.3%}", *(_percent(value) for value in (point.measured, point.upper))),
            f"{point.sum_s * 1e3:.4g}",
            f"{point.bound_s * 1e3:.4g}" if point.bound_s > 0 else "",
            str(point.partitions),
            ", ".join(point.backends),
        )
        for point in plan.frontier
    ]


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.3%}"
