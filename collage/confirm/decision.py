"""Decision: which plan ships, and why: by costs alone (`settle`), or by end-to-end runs (`confirm`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import msgspec

from collage.backends.base import Backend
from collage.confirm.confirmation import SEARCHED, UNTOUCHED, Confirmation
from collage.confirm.contest import Contest, Trial
from collage.confirm.correction import Round, refine
from collage.confirm.starters import hopeless
from collage.confirm.ties import simplest, tie_notes
from collage.cost.cost import Cost
from collage.deployed.plan_runner import Placement
from collage.errors import NoCoverError
from collage.graph.candidates import CandidatePartition
from collage.search import Partitioning, Searcher, SearchProblem
from collage.search.phase import Searched, search, single_backend_baselines
from collage.search.thread_pools import shared_pools


@dataclass(frozen=True)
class Decision:
    """What ships, and why.

    Attributes
    ----------
    choice
        Name of the contestant that ships.
    shipped
        Its placement; None is TVM's own build.
    searched
        The placement that was searched.
    problem
        Has the costs that it was decided by, corrected ones where it was run.
    notes
        What the user should know.
    rounds
        The placements that were searched and run; () when nothing was run.
    corrected_cost
        Seconds: the sum of the placement's costs, corrected by its own run, too.
    confirmation
        What was measured end to end.
    """

    choice: str
    shipped: Partitioning | None
    searched: Partitioning
    problem: SearchProblem
    notes: tuple[str, ...] = ()
    rounds: tuple[Round, ...] = ()
    corrected_cost: Cost = field(default_factory=Cost.unknown)
    confirmation: Confirmation | None = None


def decide(
    searcher: Searcher,
    searched: Searched,
    backends: Mapping[str, Backend],
    contest: Contest | None,
    correction_rounds: int,
    session: Callable[[], AbstractContextManager[None]],
    files: Mapping[str, Sequence[CandidatePartition]] = MappingProxyType({}),
) -> Decision:
    """`confirm` against every single-backend plan; `settle` where there is no contest."""
    baselines = single_backend_baselines(searched.problem, backends)
    if contest is None:
        return settle(searched, baselines)
    return confirm(searcher, searched, baselines, backends, contest, correction_rounds, session, files)


def settle(searched: Searched, baselines: Mapping[str, Partitioning]) -> Decision:
    """Decide by costs alone: ties go to the simplest placement."""
    found = searched.partitioning
    choice, shipped = simplest(searched.problem, found, baselines)
    return Decision(choice, shipped, found, searched.problem, (*found.notes, *tie_notes(found, choice)))


def confirm(
    searcher: Searcher,
    searched: Searched,
    baselines: Mapping[str, Partitioning],
    backends: Mapping[str, Backend],
    contest: Contest,
    correction_rounds: int,
    session: Callable[[], AbstractContextManager[None]],
    files: Mapping[str, Sequence[CandidatePartition]] = MappingProxyType({}),
) -> Decision:
    """Decide by end-to-end latencies: run the searched placement against the baselines, correct costs, search again.

    What a search measures, it measures in a `session` of the estimator, which is over before plans run. `files` are the
    placements that run the network's own file (`collage.compile.rewrite.on_file`): nothing is searched about them.

    Raises
    ------
    CollageError
        Not one placement runs and gives the right numbers.
    """
    problem = searched.problem

    def search_some(names: frozenset[str], corrected: SearchProblem) -> Partitioning | None:
        """The placement over some of the backends; None where they have none."""
        some = replace(corrected, candidates=corrected.candidates.of_backends(names))
        try:
            with session():
                return search(searcher, some, backends).partitioning
        except NoCoverError:
            return None

    sets_of_backends = [frozenset(backends), *shared_pools(backends.values())]
    searches = [partial(search_some, names) for names in sets_of_backends]
    # A searcher that went by end-to-end latencies has no need of corrected costs.
    repeats = 0 if problem.latency_table.used else correction_rounds
    found = searched.partitioning
    without = hopeless(problem, found, baselines, backends.values(), contest.rivals.values(), files)
    raced = {name: baseline for name, baseline in baselines.items() if name not in without}
    others: dict[str, Placement] = {name: p.candidates for name, p in raced.items()}
    if UNTOUCHED not in without:
        others[UNTOUCHED] = None
    others.update(files)
    trials = contest.trial({SEARCHED: found.candidates, **others})

    def run(placement: Partitioning) -> Trial:
        return contest.trial({SEARCHED: placement.candidates})[SEARCHED]

    refined = refine(problem, searches, found, raced, trials, run, repeats)
    names = refined.names()
    searched_plans = dict(zip(names, refined.rounds, strict=True))
    confirmation = contest.decide(
        {**{name: r.partitioning.candidates for name, r in searched_plans.items()}, **others},
        {**trials, **{name: r.trial for name, r in searched_plans.items()}},
    )
    confirmation, answer = confirmation.with_answer(names)
    found = refined.rounds[answer].partitioning
    choice = confirmation.shipped
    problem, shipped = refined.problem, found if choice == SEARCHED else raced.get(choice)
    if choice in files:
        shipped = Partitioning(tuple(files[choice]), confirmation.of(choice).latency)
        problem = replace(problem, cost_table=problem.cost_table.knowing(shipped.candidates[0], shipped.cost))
    return Decision(
        choice=choice,
        shipped=shipped,
        searched=found,
        problem=problem,
        notes=found.notes,
        rounds=refined.rounds,
        corrected_cost=Cost(refined.corrected(answer)),
        confirmation=msgspec.structs.replace(confirmation, contestants=(*confirmation.contestants, *without.values())),
    )
