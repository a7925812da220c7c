"""The fastest placement within an error budget: searched by predicted errors, judged by measured ones.

The search runs first in float32, as without a budget. Then lower precision is offered where it can matter. The
placements found are judged on held-out samples (`collage.confirm.dial`), and those that keep the budget race. If none
does, the decision is among float32 placements (`collage.confirm.decision`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import msgspec

from collage.accuracy.budget import Budget
from collage.accuracy.grant import Grant
from collage.backends.base import Backend
from collage.confirm.confirmation import SEARCHED
from collage.confirm.contest import Contest
from collage.confirm.decision import Decision, decide
from collage.confirm.dial import Attempt, Dial
from collage.confirm.starters import hopeless
from collage.deployed.plan_runner import Placement
from collage.errors import NoCoverError
from collage.search import Searcher, SearchProblem
from collage.search.frontier import Frontier
from collage.search.phase import Searched, search, single_backend_baselines

#: Accepted placements that race.
_RACE = 3


@dataclass(frozen=True)
class Within:
    """How a decision keeps a budget.

    Attributes
    ----------
    budget
        What was granted.
    frontier
        All placements that were found, by predicted errors, with proven bounds.
    attempts
        Those that were judged, in this order.
    shipped
        The attempt that ships; None where it is float32.
    """

    budget: Budget
    frontier: Frontier
    attempts: tuple[Attempt, ...]
    shipped: Attempt | None


def decide_within(
    grant: Grant,
    searcher: Searcher,
    problem: SearchProblem,
    backends: Mapping[str, Backend],
    contest: Contest | None,
    correction_rounds: int,
    session: Callable[[], AbstractContextManager[None]],
) -> tuple[Decision, Within]:
    """Decide what ships within a budget; by predictions alone where there is no contest.

    Parameters
    ----------
    problem
        With candidates of all precisions; those with products in eight bits are added here.

    Raises
    ------
    NoCoverError, CollageError
        As of `collage.confirm.decision.confirm`.
    """
    exact = {name: backend for name, backend in backends.items() if not backend.is_less_precise}
    with session():
        searched = search(searcher, replace(problem, candidates=problem.candidates.of_backends(exact)), exact)
    dial = Dial(grant, searcher, problem, searched, backends, session)
    if contest is None:
        return _settle_within(dial)
    return _confirm_within(dial, searched, exact, contest, correction_rounds)


def _confirm_within(
    dial: Dial, searched: Searched, exact: Mapping[str, Backend], contest: Contest, correction_rounds: int
) -> tuple[Decision, Within]:
    """Run what is expected to keep the budget; those that do race, beside float32 on single backends."""
    dial.turn(contest)
    found = [attempt for attempt in dial.attempts if attempt.keeps]
    engines = dial.judge_engines(contest)
    kept = [*sorted(found, key=lambda a: a.point.seconds)[:_RACE], *engines]
    if all(attempt.point.error == 0.0 for attempt in kept):
        decision = decide(dial.searcher, searched, exact, contest, correction_rounds, dial.session)
        return replace(decision, notes=(*decision.notes, *_closest(dial))), _within(dial, None)
    names = [SEARCHED if n == 0 else f"{SEARCHED}, {n + 1}" for n in range(len(kept))]
    attempts = dict(zip(names, kept, strict=True))
    baselines = single_backend_baselines(searched.problem, exact)
    without = hopeless(dial.problem, kept[0].point.partitioning, baselines, exact.values(), contest.rivals.values())
    raced = {name: cover for name, cover in baselines.items() if name not in without}
    placements: dict[str, Placement] = {
        **{name: a.point.partitioning.candidates for name, a in attempts.items()},
        **{name: cover.candidates for name, cover in raced.items()},
    }
    confirmation = contest.decide(placements, contest.trial(placements))
    confirmation, answer = confirmation.with_answer(names)
    best, choice = kept[answer], confirmation.shipped
    shipped = best if choice == SEARCHED else None
    decision = Decision(
        choice=choice,
        shipped=best.point.partitioning if shipped is not None else raced.get(choice),
        searched=best.point.partitioning,
        problem=dial.problem,
        notes=dial.notes,
        confirmation=msgspec.structs.replace(confirmation, contestants=(*confirmation.contestants, *without.values())),
    )
    return decision, _within(dial, shipped)


def _settle_within(dial: Dial) -> tuple[Decision, Within]:
    """The fastest placement whose predicted error is within the budget."""
    widest = dial.grant.budget.widest
    dial.offer(widest)
    point = dial.frontier.best(widest)
    if point is None:
        raise NoCoverError("no placement has a predicted error within the budget: add a backend of float32")
    found = point.partitioning
    note = f"the error is predicted ({point.error:.2%}), and was not measured"
    return Decision(SEARCHED, found, found, dial.problem, (*found.notes, note)), _within(dial, None)


def _within(dial: Dial, shipped: Attempt | None) -> Within:
    return Within(dial.grant.budget, dial.frontier, tuple(dial.attempts), shipped)


def _closest(dial: Dial) -> list[str]:
    """What came closest to the budget, for the summary."""
    less = [a for a in dial.attempts if a.point.error > 0.0]
    if not less:
        return ["nothing of less precision is expected to be faster within the budget: float32 ships"]
    best, limit = min(less, key=lambda a: a.verdict.upper), dial.grant.budget.limit
    more = "; more samples may show that it keeps the budget" if best.verdict.value <= limit else ""
    return [
        f"no placement of less precision kept the budget of {limit:.3%} on {best.verdict.samples} held-out samples: "
        f"float32 ships; the closest had {best.verdict.value:.3%} (at most {best.verdict.upper:.3%}){more}"
    ]
