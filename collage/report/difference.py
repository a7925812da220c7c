"""What moved between two plans of one network, what it costs, and which measurement changed it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collage.errors import PlanError
from collage.graph.candidates import HOST
from collage.planned.data import PlanData, PlannedPartition
from collage.planned.graph import PlannedCandidate, nodes_of, ranges_text
from collage.report.facts import milliseconds, shorten


@dataclass(frozen=True)
class Moved:
    """Operators that run elsewhere, or in other partitions: the smallest set that both plans have as whole partitions.

    Attributes
    ----------
    operators
        In order.
    before, after
        Backends of the partitions, in order.
    before_s, after_s
        Seconds: sums of their costs, each as its plan has them; NaN where one is not known.
    measurement
        The candidate whose cost differs most between the plans, beyond both intervals; "" where none is known in both.
    times
        How many such sets there are.
    """

    operators: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    before_s: float
    after_s: float
    measurement: str
    times: int = 1


@dataclass(frozen=True)
class Difference:
    """Of two plans.

    Attributes
    ----------
    facts
        (what, in the first, in the second) of what differs in the whole.
    moved
        The largest change of cost first.
    same
        How many partitions are the same in both.
    """

    facts: tuple[tuple[str, str, str], ...]
    moved: tuple[Moved, ...]
    same: int


def difference(before: PlanData, after: PlanData) -> Difference:
    """Compare two plans of one network.

    Raises
    ------
    PlanError
        They are of two networks.
    """
    if before.network != after.network:
        raise PlanError("the plans are of two networks: their structures differ")
    groups, same = _regions(before.partitions, after.partitions)
    kinds: dict[object, list[Moved]] = {}
    for ours, theirs in groups:
        found = _moved(before, after, ours, theirs)
        kinds.setdefault((found.operators, found.before, found.after), []).append(found)
    moved = [_together(equal) for equal in kinds.values()]
    moved.sort(key=lambda m: -abs(m.after_s - m.before_s) if math.isfinite(m.after_s - m.before_s) else 0.0)
    return Difference(tuple(_facts(before, after)), tuple(moved), same)


def _regions(
    before: Sequence[PlannedPartition], after: Sequence[PlannedPartition]
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Numbers of partitions of both plans that have the same nodes together, and how many partitions are equal."""
    owner = {node: number for number, part in enumerate(after) for node in part.nodes}
    reached: dict[int, set[int]] = {
        number: {owner[n] for n in p.nodes if n in owner} for number, p in enumerate(before)
    }
    back: dict[int, set[int]] = {}
    for number, others in reached.items():
        for other in others:
            back.setdefault(other, set()).add(number)
    regions, same, done = [], 0, set[int]()
    for first in reached:
        if first in done:
            continue
        ours, theirs, waiting = {first}, set[int](), [first]
        while waiting:
            for other in reached[waiting.pop()] - theirs:
                theirs.add(other)
                waiting += sorted(back[other] - ours)
                ours |= back[other]
        done |= ours
        if len(ours) == len(theirs) == 1 and _equal(before[first], after[min(theirs)]):
            same += before[first].backend != HOST
        else:
            regions.append((sorted(ours), sorted(theirs)))
    return regions, same


def _equal(a: PlannedPartition, b: PlannedPartition) -> bool:
    return (a.backend, a.nodes, a.composites) == (b.backend, b.nodes, b.composites)


def _moved(before: PlanData, after: PlanData, ours: Sequence[int], theirs: Sequence[int]) -> Moved:
    first, second = ([p.partitions[i] for i in of] for p, of in ((before, ours), (after, theirs)))
    operators = dict(sorted(pair for p in first or second for pair in zip(p.nodes, p.operators, strict=False)))
    return Moved(
        tuple(operators.values()),
        tuple(p.backend for p in first if p.backend != HOST),
        tuple(p.backend for p in second if p.backend != HOST),
        sum(p.cost.seconds for p in first),
        sum(p.cost.seconds for p in second),
        _measurement(_known(before, ours), _known(after, theirs), dict(operators)),
    )


def _together(equal: Sequence[Moved]) -> Moved:
    """Equal sets as one, with the sums of their costs."""
    first = equal[0]
    sums = (sum(m.before_s for m in equal), sum(m.after_s for m in equal))
    measurement = next((m.measurement for m in equal if m.measurement), "")
    return Moved(first.operators, first.before, first.after, *sums, measurement, len(equal))


def _known(plan: PlanData, numbers: Sequence[int]) -> dict[tuple[str, str], PlannedCandidate]:
    """The candidates with a cost beside some partitions, by backend and nodes; at the places of those partitions."""
    found: dict[tuple[str, str], PlannedCandidate] = {}
    listed = plan.candidates
    if listed is None or len(listed.alike) != len(plan.partitions):
        return found
    for number in numbers:
        like = listed.alike[number]
        places = dict(zip(plan.partitions[like].nodes, plan.partitions[number].nodes, strict=False))
        for candidate in listed.listed:
            inside = nodes_of(candidate.nodes) if candidate.partition == like else ()
            if candidate.seconds is not None and inside and all(node in places for node in inside):
                found[candidate.backend, ranges_text(places[node] for node in inside)] = candidate
    return found


def _measurement(
    before: Mapping[tuple[str, str], PlannedCandidate],
    after: Mapping[tuple[str, str], PlannedCandidate],
    operators: Mapping[int, str],
) -> str:
    best, text = 0.0, ""
    for key in before.keys() & after.keys():
        old, new = before[key], after[key]
        if not old.seconds or not new.seconds or abs(new.seconds - old.seconds) <= old.spread + new.spread:
            continue
        change = abs(math.log(new.seconds / old.seconds))
        if change > best:
            backend, nodes = key
            chain = shorten([operators.get(node, "?") for node in nodes_of(nodes)], 40)
            best, text = change, f"{backend} on {chain}: {old.seconds * 1e3:.4g} -> {new.seconds * 1e3:.4g} ms"
    return text


def _facts(before: PlanData, after: PlanData) -> list[tuple[str, str, str]]:
    def shown(plan: PlanData) -> dict[str, str]:
        backends = {f"version of {name}": version for name, version in sorted(plan.versions.items())}
        count = sum(p.backend != HOST for p in plan.partitions)
        return {
            "ships": plan.choice,
            "end to end, ms": milliseconds(plan.latency) if plan.latency.is_finite else "not run",
            "sum of costs, ms": milliseconds(plan.searched_cost),
            "partitions": str(count),
            "threads": str(plan.threads),
            "device": plan.device,
            "searcher": plan.searcher,
            "estimator": plan.estimator,
            **backends,
        }

    first, second = shown(before), shown(after)
    names = dict.fromkeys([*first, *second])
    return [(n, first.get(n, "-"), second.get(n, "-")) for n in names if first.get(n) != second.get(n)]
