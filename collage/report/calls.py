"""One call of the plan that ships: its partitions and what is between them, as the page draws them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from collage.deployed.timeline import TimedCall
from collage.graph.candidates import HOST
from collage.planned.data import PlanData, PlannedPartition

#: A gap is drawn where it takes such a share of the whole.
_WORTH = 0.002
#: What the virtual machine calls for a copy to another device.
_COPY = "vm.builtin.to_device"


def calls_of(plan: PlanData) -> dict[str, Any] | None:
    """What the page draws; None where no call was watched."""
    inside = inside_of(plan)
    if plan.confirmation is None or not inside or not plan.latency.is_finite:
        return None
    latency = plan.latency.seconds
    timeline = plan.confirmation.of(plan.confirmation.shipped).timeline
    backends = [number for number, p in enumerate(plan.partitions) if p.backend != HOST]
    starts = sum(call.partition >= 0 for call in timeline) == len(backends)
    bars = list(_started(timeline, backends, plan.partitions) if starts else _cumulated(inside))
    end = timeline[-1].end if starts else sum(inside.values())
    return {
        "starts": starts,
        "bars": bars,
        "sum": _ms(sum(inside.values())),
        "end": _ms(end),
        "latency": _ms(latency),
        "rest": _ms(latency - end),
        "threads": plan.threads,
    }


def inside_of(plan: PlanData) -> dict[int, float]:
    """Seconds of each partition, by number, in calls of the plan that ships; {} where that was not watched."""
    if plan.confirmation is None:
        return {}
    seconds = plan.confirmation.of(plan.confirmation.shipped).partition_seconds
    numbers = [number for number, p in enumerate(plan.partitions) if p.backend != HOST]
    return dict(zip(numbers, seconds, strict=True)) if len(seconds) == len(numbers) else {}


def _cumulated(inside: dict[int, float]) -> Iterator[dict[str, Any]]:
    at = 0.0
    for number, seconds in inside.items():
        yield _bar(number, "", at, at + seconds)
        at += seconds


def _started(
    timeline: Sequence[TimedCall], backends: Sequence[int], partitions: Sequence[PlannedPartition]
) -> Iterator[dict[str, Any]]:
    """Calls at their starts, and gaps that are worth it, named after what is around them."""
    names = [_name(call, backends, partitions) for call in timeline]
    for i, call in enumerate(timeline):
        yield _bar(backends[call.partition] if call.partition >= 0 else -1, names[i], call.begin, call.end)
        if i + 1 < len(timeline) and timeline[i + 1].begin - call.end >= _WORTH * timeline[-1].end:
            yield _bar(-2, f"between {names[i]} and {names[i + 1]}", call.end, timeline[i + 1].begin)


def _name(call: TimedCall, backends: Sequence[int], partitions: Sequence[PlannedPartition]) -> str:
    if call.partition >= 0:
        number = backends[call.partition]
        return f"{number + 1} ({partitions[number].backend})"
    return "a copy to another device" if call.name == _COPY else call.name


def _bar(partition: int, name: str, start: float, end: float) -> dict[str, Any]:
    """`partition` is -1 of what the virtual machine calls besides, and -2 of a gap."""
    return {"partition": partition, "name": name, "start": _ms(start), "end": _ms(end)}


def _ms(seconds: float) -> float | None:
    return float(f"{seconds * 1e3:.6g}") if math.isfinite(seconds) else None
