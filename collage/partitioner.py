"""partition(): the phases of RFC 0062 in their order, and the confirmation after them.

`enumerate_candidates` (phases 1 and 2), `search` (phase 3), `confirm` or `settle`, and the `Plan`. Phase 4 is the
plan's own (`Plan.compile`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from collage import plugins
from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.compile.tuning import tune_kernels
from collage.confirm.contest import SEARCHED, UNTOUCHED, Confirmation
from collage.confirm.correction import refine
from collage.confirm.latencies import Latencies
from collage.confirm.launches import launch_notes
from collage.confirm.run import Contest, Trial
from collage.confirm.ties import simplest, tie_notes
from collage.cost import Cost
from collage.deployed.plan_runner import Placement, PlanRunner
from collage.deployed.protocol import EndToEnd
from collage.deployed.rivals import rivals_of
from collage.effort import Effort
from collage.errors import CollageError, NoCoverError
from collage.estimate import CostEstimator
from collage.frontend import load
from collage.frontend.source import notes_of, onnx_file
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.interrupt import interruptible, resumable
from collage.measure.reference import ReferenceRun
from collage.measure.transitions import transition_costs
from collage.measure.workloads import WorkloadCosts, WorkloadFactory
from collage.plan import Plan
from collage.planned.data import PlannedPartition, PlannedTransition, PlanRound
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.runtime.device_info import describe_device
from collage.runtime.threads import configure_threads, default_threads
from collage.search import CostTable, LatencyTable, Partitioning, Searcher, SearchProblem
from collage.search.coalescing import coalesced
from collage.search.single_backend import single_backend
from collage.search.thread_pools import shared_pools
from collage.transition import Pair, Transition, completed, transition_notes

#: How often what a search put side by side is joined and costed; the next search may put other things side by side.
_COALESCING_ROUNDS = 4


def partition(
    model: Any,
    backends: Sequence[str | Backend] | None = None,
    searcher: str | Searcher = "dijkstra",
    estimator: str | CostEstimator | None = None,
    *,
    device: str = "cpu",
    records: str | Path | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[np.ndarray] | None = None,
    confirm_end_to_end: bool = True,
    effort: str | Effort = "normal",
    correction_rounds: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    searcher_parameters: Mapping[str, Any] | None = None,
    estimator_parameters: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> Plan:
    """Find which backend should run which part of a network.

    Parameters
    ----------
    model
        What `collage.load` takes, or what it gave.
    backends
        Names or instances; None is every backend of the device that is available here. A name may leave out the
        device: "tvm" is "tvm-cuda" on "cuda". Those of which the estimator knows nothing are left out, with a note.
    searcher, estimator
        A name or an instance. An estimator of None goes by the effort.
    device
        What the network is to run on, "cpu" or "cuda".
    records
        Path of the records database; None is the default one in the user's cache folder.
    threads
        Number of threads of the deployment; None is all processors of this process.
    shapes
        Input name -> shape, for dynamic dimensions.
    inputs
        Arrays to run candidates on; None makes legal random ones.
    confirm_end_to_end
        Whether the plan is run against the baselines before it is returned.
    effort
        How long finding the plan may take: "quick" predicts costs, "normal" measures what could still change the plan,
        "thorough" measures every candidate (`collage.effort`).
    correction_rounds
        How often, at most, costs are corrected by what partitions took inside the whole, and the search is repeated
        (`collage.confirm.correction`); None goes by the effort.
    budget_s
        Seconds that the search may take; None for no limit.
    seed
        Of the searcher's and the inputs' random numbers.
    searcher_parameters, estimator_parameters
        Of their constructors, where they are given by name, or by the effort.
    reporter
        Shows progress.

    Returns
    -------
    Plan
        What ships, with its reasons.

    Raises
    ------
    FrontendError, PluginError, BackendUnavailableError, NoCoverError, RecordsError
        See there.
    SearchInterrupted
        The user pressed Ctrl-C; what was measured is in the records, and the same call resumes.
    """
    reporter = reporter or Reporter()
    threads = threads or default_threads()
    configure_threads(threads)
    effort = Effort.of(effort)
    correction_rounds = effort.correction_rounds if correction_rounds is None else correction_rounds
    with interruptible(), RecordDatabase(records) as database, closing(reporter), resumable(database.path):
        search_with: Searcher = plugins.load("searchers", searcher, **searcher_parameters or {})
        parameters = estimator_parameters or {}
        available = resolve_backends(backends, device)
        passed_over: tuple[str, ...] = ()
        estimate_with: CostEstimator
        if estimator is None:
            estimate_with, passed_over = effort.estimator(describe_device(device), available, threads, parameters)
        else:
            estimate_with = plugins.load("estimators", estimator, **parameters)
        estimate_with = estimate_with.bind(database, reporter)
        chosen, left_out = _known(available, estimate_with)
        module = load(model, shapes, device)
        graph, network = read_graph(module), structure_hash(describe_module(module))
        reference = ReferenceRun(module, graph, threads, inputs, seed)

        reporter.stage("enumerating candidates")
        candidates = enumerate_candidates(graph, chosen)
        alone = partial(fewest_partitions, search_with, graph, candidates)
        tune_kernels(module, graph, chosen, threads, alone, reporter)

        workloads = WorkloadFactory(module, graph, chosen, threads, reference.values)
        costs = WorkloadCosts(estimate_with, workloads.of)
        known = estimate_with.transitions(list(chosen), threads)
        if known is None:
            known = transition_costs(list(chosen.values()), threads, database, reporter, estimate_with.uses_device)
        transitions = completed(known, {name: backend.pool for name, backend in chosen.items()})
        with PlanRunner(
            module,
            graph,
            chosen,
            threads,
            reference.inputs,
            reference.outputs if confirm_end_to_end else [],
            reporter,
            EndToEnd(race_rounds=effort.race_rounds, final_rounds=effort.final_rounds),
            device,
            seed,
        ) as runner:
            latencies = Latencies(network, chosen, runner, database)
            problem = SearchProblem(
                graph=graph,
                candidates=candidates,
                cost_table=CostTable(costs.costs, workloads.of, costs.intervals),
                transitions=transitions,
                priorities={name: backend.priority for name, backend in chosen.items()},
                latency_table=LatencyTable(latencies, latencies.again) if confirm_end_to_end else LatencyTable(),
                budget_s=budget_s,
                seed=seed,
                progress=lambda line: reporter.step(line, 0),
            )
            with estimate_with.session():
                searched = search(search_with, problem, chosen)
            baselines = single_backend_baselines(searched.problem, chosen)
            if confirm_end_to_end:
                rivals = rivals_of(onnx_file(model, runner.folder), device)
                contest = Contest(network, chosen, database, runner, rivals)
                decision = confirm(
                    search_with, searched, baselines, chosen, contest, correction_rounds, estimate_with.session
                )
            else:
                decision = settle(searched, baselines)
        return Plan(
            module=module,
            network=network,
            choice=decision.choice,
            partitions=planned_partitions(decision, costs),
            transitions=planned_transitions(transitions, {c.backend for c in decision.searched.candidates}),
            backends=chosen,
            versions={name: backend.version() for name, backend in chosen.items()},
            threads=threads,
            device=device,
            searched_cost=decision.searched.cost,
            greedy_loss=greedy_loss(searched),
            lower_bound=decision.searched.lower_bound,
            corrected_cost=decision.corrected_cost,
            rounds=decision.rounds,
            confirmation=decision.confirmation,
            searcher=repr(search_with),
            estimator=type(estimate_with).__name__,
            notes=(
                *notes_of(module),
                *decision.notes,
                *passed_over,
                *left_out,
                *transition_notes(transitions),
                *costs.notes(),
                *launch_notes(decision.confirmation),
            ),
        )


def _known(backends: Mapping[str, Backend], estimator: CostEstimator) -> tuple[dict[str, Backend], list[str]]:
    """The backends of which the estimator knows costs, and notes on the others."""
    # Where nothing is known of any of them, the estimator itself says so when it is asked.
    known = {name: backend for name, backend in backends.items() if estimator.knows(name)} or dict(backends)
    notes = [
        f"{type(estimator).__name__} knows no costs of {name}, which was left out: train it on records of that "
        "backend, or choose another estimator"
        for name in backends
        if name not in known
    ]
    return known, notes


def enumerate_candidates(graph: DataflowGraph, backends: Mapping[str, Backend]) -> CandidateSet:
    """Phases 1 and 2: the candidates that the backends' rules find, and the nodes that may stay on the host.

    Raises
    ------
    NoCoverError
        No backend takes some operator.
    """
    return gather_candidates(graph, [PartitionSpec(backend.rule(), name) for name, backend in backends.items()])


def fewest_partitions(
    searcher: Searcher, graph: DataflowGraph, candidates: CandidateSet, backend: str
) -> Sequence[CandidatePartition]:
    """The cover of fewest partitions that a backend has without the others."""
    equal = CostTable(lambda asked: [Cost(1.0)] * len(asked))
    return searcher.search(SearchProblem(graph, candidates.of_backends([backend]), equal)).candidates


@dataclass(frozen=True)
class Searched:
    """The answer of a search.

    Attributes
    ----------
    partitioning
        The cover that was found.
    problem
        With all candidates that came up.
    """

    partitioning: Partitioning
    problem: SearchProblem


def search(searcher: Searcher, problem: SearchProblem, backends: Mapping[str, Backend]) -> Searched:
    """Phase 3: search and coalesce in alternation, until no union of neighbouring partitions is new.

    Raises
    ------
    NoCoverError
        No cover of finite cost exists.
    """
    found = searcher.search(problem)
    for _ in range(_COALESCING_ROUNDS):
        if problem.latency_table.used:
            break
        unions = coalesced(problem.graph, found, problem.candidates, backends)
        if not unions:
            break
        problem = replace(problem, candidates=CandidateSet([*problem.candidates, *unions]))
        found = searcher.search(problem)
    return Searched(found, problem)


def single_backend_baselines(problem: SearchProblem, backends: Mapping[str, Backend]) -> dict[str, Partitioning]:
    """Name of a contestant -> the placement on one backend, as far as it goes."""
    alone = single_backend(plugins.load("searchers", "dijkstra"), problem, backends.values())
    return {f"{name} alone": cover for name, cover in alone.items()}


def planned_transitions(transitions: Mapping[Pair, Transition], used: Collection[str]) -> tuple[PlannedTransition, ...]:
    """Those between the backends that are used."""
    pairs = ((a, b) for a, b in transitions if a in used and b in used)
    return tuple(PlannedTransition(a, b, transitions[a, b]) for a, b in pairs)


def greedy_loss(searched: Searched) -> float:
    """How much more, relatively, the greedy searcher's placement costs, by the costs that are known; NaN where it finds
    none.
    """
    problem = searched.problem
    known = CandidateSet(c for c in problem.candidates if problem.known(c) is not None)
    try:
        greedy: Partitioning = plugins.load("searchers", "greedy").search(replace(problem, candidates=known))
    except CollageError:  # lazy costing leaves gaps, and greed meets dead ends
        return math.nan
    best = searched.partitioning.cost
    return greedy.cost.seconds / best.seconds - 1.0 if greedy.cost.is_finite and best.is_finite else math.nan


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
    rounds, corrected_cost, confirmation
        See `PlanData`.
    """

    choice: str
    shipped: Partitioning | None
    searched: Partitioning
    problem: SearchProblem
    notes: tuple[str, ...] = ()
    rounds: tuple[PlanRound, ...] = ()
    corrected_cost: Cost = field(default_factory=Cost.unknown)
    confirmation: Confirmation | None = None


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
) -> Decision:
    """Decide by end-to-end latencies: run the searched placement against the baselines, correct costs, search again.

    What a search measures, it measures in a `session` of the estimator, which is over before plans run.

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
    without = contest.hopeless(problem, found, baselines)
    raced = {name: baseline for name, baseline in baselines.items() if name not in without}
    others: dict[str, Placement] = {name: p.candidates for name, p in raced.items()}
    if UNTOUCHED not in without:
        others[UNTOUCHED] = None
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
    return Decision(
        choice=choice,
        shipped=found if choice == SEARCHED else raced.get(choice),
        searched=found,
        problem=refined.problem,
        notes=found.notes,
        rounds=tuple(map(PlanRound.of, refined.rounds)),
        corrected_cost=Cost(refined.corrected(answer)),
        confirmation=msgspec.structs.replace(confirmation, contestants=(*confirmation.contestants, *without.values())),
    )


def planned_partitions(decision: Decision, costs: WorkloadCosts) -> tuple[PlannedPartition, ...]:
    """The partitions that ship, each with the next best backend on the same nodes; () for TVM's own build."""
    problem = decision.problem
    same: dict[int, list[CandidatePartition]] = {}
    for candidate in problem.candidates:
        same.setdefault(candidate.sub_graph.inside.bits, []).append(candidate)
    planned = []
    for candidate in decision.shipped.candidates if decision.shipped is not None else ():
        inside = candidate.sub_graph.inside
        others = [c for c in same.get(inside.bits, []) if c.backend not in (candidate.backend, HOST)]
        # What a search did not cost is not measured for the table's sake.
        others = [c for c in others if costs.workload(c) in costs.asked]
        finite = [(problem.cost(c), c.backend) for c in others if problem.cost(c).is_finite]
        cost, runner_up = min(finite, key=lambda pair: pair[0].seconds, default=(Cost.unknown(), ""))
        planned.append(
            PlannedPartition(
                backend=candidate.backend,
                nodes=tuple(inside),
                operators=tuple(problem.graph.nodes[i].op for i in inside),
                composites=tuple((label, tuple(nodes)) for label, nodes in candidate.composites),
                cost=problem.cost(candidate),
                runner_up=runner_up,
                runner_up_cost=cost,
            )
        )
    return tuple(planned)
