"""The first lines of every summary: what ships, how much faster than which rival, and how sure that is."""

from __future__ import annotations

from collections import Counter

from collage.confirm.confirmation import SEARCHED, Contestant
from collage.graph.candidates import HOST
from collage.planned.data import PlanData
from collage.report.facts import milliseconds, percent


def headline(plan: PlanData) -> list[str]:
    """Three sentences, the first ones that a reader sees; only the first where nothing was run end to end."""
    rivals = strongest(plan)
    lines = [f"Ships: {_what(plan)}"]
    if plan.confirmation is None:
        return [*lines, "Not confirmed: it was not run end to end against the baselines"]
    if not rivals:
        return [*lines, "Nothing else that runs and gives the right numbers was timed beside it"]
    lines.append(_first_upper("; ".join(map(_against, rivals))))
    return [*lines, f"How sure: {_certainty(plan, rivals)}"]


def strongest(plan: PlanData) -> list[Contestant]:
    """The fastest rival by its own API and the fastest other plan, the faster one first: of those with a ratio to what
    ships. Placements that the same search found on its way are no rivals.
    """
    if plan.confirmation is None:
        return []
    others = [
        c
        for c in plan.confirmation.contestants
        if c.ratio is not None and c.name != plan.confirmation.shipped and not c.name.startswith(f"{SEARCHED}, ")
    ]
    found = []
    for rival in (True, False):
        group = [c for c in others if c.rival is rival]
        final = [c for c in group if c.fresh]
        if best := min(final or group, key=lambda c: c.ratio or (), default=None):
            found.append(best)
    return sorted(found, key=lambda c: c.ratio or ())


def _what(plan: PlanData) -> str:
    counts = Counter(p.backend for p in plan.partitions if p.backend != HOST)
    total = sum(counts.values())
    where = ", ".join(f"{name} ×{count}" if len(counts) > 1 else name for name, count in counts.most_common(5))
    where += ", …" if len(counts) > 5 else ""
    placed = f": {total} partition{'' if total == 1 else 's'} on {where}" if counts else ", built by TVM alone"
    latency = f"; {milliseconds(plan.latency)} ms a call" if plan.latency.is_finite else ""
    return f"{plan.choice}{placed}{latency}, {plan.threads} thread{'' if plan.threads == 1 else 's'}"


def _against(rival: Contestant) -> str:
    assert rival.ratio is not None
    ratio = rival.ratio[0]
    if ratio >= 1.0:
        return f"{ratio:.3g} times as fast as {rival.name}"
    return f"takes {percent(1.0 / ratio - 1.0, signed=False)} more than {rival.name}"


def _certainty(plan: PlanData, rivals: list[Contestant]) -> str:
    assert plan.confirmation is not None
    parts = []
    for rival in rivals:
        assert rival.ratio is not None
        low, high = rival.ratio[1:]
        verdict = "certain against" if low > 1.0 else "certainly slower than" if high < 1.0 else "a tie against"
        parts.append(f"{verdict} {rival.name} (95% interval {low:.3f} to {high:.3f})")
    shared = percent(plan.confirmation.disturbed, signed=False)
    if plan.confirmation.disturbed > 0:
        parts.append(f"the machine was disturbed in {shared} of the rounds")
    return "; ".join(parts)


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
