"""The estimator behind a plan: candidates that were both predicted and measured, as the page draws them."""

from __future__ import annotations

from collage.planned.data import PlanData
from collage.planned.graph import INSIDE, MEASURED, PlannedCandidate, nodes_of
from collage.report.facts import shorten
from collage.report.sections import Drawn, Point, evenly, scatter, section

#: Points of the chart.
_POINTS = 600


def predictions_of(plan: PlanData) -> Drawn | None:
    """The section; None where no candidate has both."""
    known = {(c.backend, c.nodes): c for c in (plan.candidates.listed if plan.candidates else ()) if _has_both(c)}
    if not known:
        return None
    found = sorted(known.values(), key=lambda c: (c.backend, c.seconds or 0.0))
    backends = sorted({c.backend for c in found})
    points = [_point(plan, c, backends.index(c.backend)) for c in evenly(found, _POINTS)]
    inside = sum((c.low or 0.0) <= (c.seconds or 0.0) <= (c.high or 0.0) for c in found)
    return section(
        "estimator",
        "The estimator",
        f"Candidates whose cost was predicted before it was measured: {len(found):,}. Inside of the predicted "
        f"interval: {inside:,}. A candidate on the line is predicted exactly. What was measured inside the whole "
        "includes what its neighbours do to it.",
        charts=[
            scatter("Predicted against measured cost of candidates", "measured, ms", "predicted, ms", backends, points)
        ],
    )


def _has_both(candidate: PlannedCandidate) -> bool:
    known = candidate.how in (MEASURED, INSIDE) and bool(candidate.seconds)
    return known and bool(candidate.low) and candidate.high is not None


def _point(plan: PlanData, candidate: PlannedCandidate, group: int) -> Point:
    """An interval is symmetric in the logarithm: its geometric middle is the prediction."""
    seconds, low, high = candidate.seconds or 0.0, candidate.low or 0.0, candidate.high or 0.0
    predicted = (low * high) ** 0.5
    about = (
        f"{candidate.backend}, {_operators(plan, candidate)}: {candidate.how} {seconds * 1e3:.4g} ms, predicted "
        f"{predicted * 1e3:.4g} ({low * 1e3:.3g} to {high * 1e3:.3g})"
    )
    return Point(seconds * 1e3, predicted * 1e3, low * 1e3, high * 1e3, group, about)


def _operators(plan: PlanData, candidate: PlannedCandidate) -> str:
    if plan.graph is None:
        return f"nodes {candidate.nodes}"
    nodes = plan.graph.nodes
    try:
        return shorten([nodes[i].op for i in nodes_of(candidate.nodes)], 60)
    except (ValueError, IndexError):  # of a plan that was edited
        return f"nodes {candidate.nodes}"
