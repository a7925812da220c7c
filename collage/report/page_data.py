"""What the page shows, as JSON-ready data: texts as the summary has them, numbers for charts in milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from collage.confirm.confirmation import Contestant
from collage.cost.cost import Cost
from collage.graph.candidates import HOST
from collage.planned.data import PlanData
from collage.planned.graph import PlannedGraph, nodes_of
from collage.report.accuracy import FRONTIER_COLUMNS, accuracy_text, frontier_rows
from collage.report.borders import borders
from collage.report.calls import calls_of, inside_of
from collage.report.facts import (
    COPY_COLUMNS,
    SHAPE_COLUMNS,
    contestant_rows,
    copies_text,
    copy_rows,
    milliseconds,
    partition_rows,
    percent,
    shape_row,
    shapes_text,
    short_name,
    shorten,
    verdict,
    warning,
)
from collage.report.headline import headline
from collage.report.levels import tree
from collage.report.predictions import predictions_of
from collage.report.summary import ratio_texts, seconds_text, whole_lines


def page_data(plans: Sequence[PlanData], title: str) -> dict[str, Any]:
    """The data of a page of one plan, or of several for several shapes."""
    table = {"columns": [name for name, _ in SHAPE_COLUMNS], "rows": [list(shape_row(plan)) for plan in plans]}
    return {
        "title": title,
        "shapes": table if len(plans) > 1 else None,
        "plans": [plan_data(plan) for plan in plans],
    }


def plan_data(plan: PlanData) -> dict[str, Any]:
    """What a page shows of one plan."""
    graph = plan.graph or PlannedGraph(())
    versions = ", ".join(f"{name} {version}" for name, version in plan.versions.items())
    return {
        "shapes": shapes_text(plan),
        "headline": headline(plan),
        "warning": warning(plan),
        "verdict": verdict(plan),
        "facts": [list(line) for line in whole_lines(plan)],
        "notes": list(plan.notes),
        "provenance": f"{plan.threads} threads; {versions}; {plan.searcher}, {plan.estimator}; "
        f"network {plan.network[:12]}",
        "contest": _contest(plan),
        "rounds": _rounds(plan),
        "calls": calls_of(plan),
        "estimator": predictions_of(plan),
        "accuracy": None if plan.accuracy is None else accuracy_text(plan.accuracy),
        "frontier": _frontier(plan),
        "groups": _groups(plan),
        "copies": _copies(plan),
        "partitions": _partitions(plan),
        "nodes": [[short_name(n.op), list(n.inputs), n.type, n.name, n.attributes] for n in graph.nodes],
        "attributes": [dict(found) for found in graph.attributes],
        "tree": tree(plan, graph) if graph.nodes else [],
        "candidates": _candidates(plan),
    }


def _contest(plan: PlanData) -> list[dict[str, Any]]:
    if plan.confirmation is None:
        return []
    found = {c.name: c for c in plan.confirmation.contestants}
    rows = []
    for row in contestant_rows(plan):
        ratio, interval = ratio_texts(row.ratio)
        rows.append(
            {
                "name": row.name,
                "latency": milliseconds(row.latency),
                "percentile": seconds_text(row.percentile),
                "ratio": ratio,
                "interval": interval,
                "remark": row.remark,
                "drawn": list(row.ratio) if row.ratio is not None and _stayed(found[row.name]) else None,
                "ships": row.name == plan.confirmation.shipped,
                "rival": found[row.name].rival,
            }
        )
    return rows


def _stayed(contestant: Contestant) -> bool:
    """Whether it was run long enough for its ratio to be compared."""
    return contestant.latency.is_finite and not contestant.latency.reason.startswith("stopped early")


def _rounds(plan: PlanData) -> list[dict[str, Any]]:
    return [
        {
            "name": f"{number}: {found.partitions} partition{'' if found.partitions == 1 else 's'}",
            "predicted": _ms(found.searched),
            "isolated": _ms(found.isolated),
            "measured": _ms(found.latency.seconds),
            "spread": _ms(found.latency.spread),
            "text": milliseconds(found.latency),
        }
        for number, found in enumerate(plan.rounds, 1)
    ]


def _frontier(plan: PlanData) -> dict[str, Any] | None:
    if not plan.frontier:
        return None
    points = [
        {
            "error": 100.0 * point.predicted,
            "measured": None if point.measured is None else 100.0 * point.measured,
            "upper": None if point.upper is None else 100.0 * point.upper,
            "sum": _ms(point.sum_s),
            "bound": _ms(point.bound_s),
            "name": ", ".join(point.backends),
        }
        for point in plan.frontier
    ]
    table = [list(row) for row in frontier_rows(plan)]
    return {"columns": [name for name, _ in FRONTIER_COLUMNS], "rows": table, "points": points}


def _copies(plan: PlanData) -> dict[str, Any] | None:
    """Between devices, where there are several."""
    if not plan.copies:
        return None
    rows = [list(row) for row in copy_rows(plan)]
    return {"text": copies_text(plan), "columns": [name for name, _ in COPY_COLUMNS], "rows": rows}


def _groups(plan: PlanData) -> list[dict[str, Any]]:
    """The rows of the table of partitions; `first` is the number of the first of them, counted with the host's."""
    numbers = [number for number, p in enumerate(plan.partitions) if p.backend != HOST]
    return [
        {
            "backend": row.backend,
            "operators": row.operators,
            "cost": milliseconds(row.cost),
            "times": len(row.positions),
            "share": percent(row.share, signed=False),
            "runnerUp": row.runner_up,
            "margin": percent(row.margin),
            "members": [numbers[position - 1] for position in row.positions],
        }
        for row in partition_rows(plan, width=120)
    ]


def _partitions(plan: PlanData) -> list[dict[str, Any]]:
    total = sum(p.cost.seconds for p in plan.partitions if p.backend != HOST)
    inside = inside_of(plan)
    crossed = borders(plan)
    return [
        {
            "backend": p.backend,
            "precision": "int8" if p.int8 else p.precision,
            "label": shorten(p.operators, 40),
            "nodes": list(p.nodes),
            "ms": _ms(p.cost.seconds),
            "cost": _cost_text(p.cost),
            "share": p.cost.seconds / total if total > 0 and p.cost.is_finite else None,
            "inside": None if number not in inside else _ms(inside[number]),
            "runnerUp": p.runner_up,
            "runnerUpCost": _cost_text(p.runner_up_cost) if p.runner_up else "",
            "margin": percent(p.margin),
            "why": _why(plan, number),
            "borders": crossed[number],
        }
        for number, p in enumerate(plan.partitions)
    ]


def _why(plan: PlanData, number: int) -> str:
    """Why a partition is what it is, in a sentence."""
    partition = plan.partitions[number]
    if partition.backend == HOST:
        return "It stays on the virtual machine: it has no kernel."
    if not partition.cost.is_finite:
        return "Its cost is not known: priorities decided."
    best = f"{partition.backend} takes {milliseconds(partition.cost)} ms"
    if not partition.runner_up:
        return f"{best}; no other backend has a cost for exactly these operators. Sums over whole covers decide."
    if partition.margin >= 0:
        return (
            f"{best}, {partition.runner_up} {milliseconds(partition.runner_up_cost)} ms on the same operators: "
            f"{percent(partition.margin)}."
        )
    return (
        f"{best}; {partition.runner_up} alone takes less here ({milliseconds(partition.runner_up_cost)} ms), but not "
        "with the transitions to its neighbours, or not by more than a tie."
    )


def _candidates(plan: PlanData) -> dict[str, Any] | None:
    found = plan.candidates
    if found is None or len(found.alike) != len(plan.partitions):
        return None  # of old, or edited
    listed = []
    for c in found.listed:
        try:
            nodes = nodes_of(c.nodes)
        except ValueError:
            continue
        cost = Cost.unknown() if c.seconds is None else Cost(c.seconds, c.spread, int(c.spread > 0))
        expected = "" if c.low is None or c.high is None else f"{c.low * 1e3:.4g} to {c.high * 1e3:.4g}"
        text = milliseconds(cost) if cost.is_finite else ""
        listed.append([c.partition, c.backend, nodes, c.how, _ms(cost.seconds), text, expected, c.reason])
    return {
        "found": found.found,
        "asked": found.asked,
        "alike": list(found.alike),
        "more": list(found.more),
        "listed": listed,
    }


def _cost_text(cost: Cost) -> str:
    known = ", predicted" if cost.is_predicted else f", {cost.samples} samples" if cost.samples else ""
    return f"{milliseconds(cost)} ms{known}" if cost.is_finite else f"{cost}{f': {cost.reason}' if cost.reason else ''}"


def _ms(seconds: float) -> float | None:
    return float(f"{seconds * 1e3:.6g}") if math.isfinite(seconds) else None
