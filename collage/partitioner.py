"""partition(): the phases of RFC 0062 in their order, and the confirmation after them.

1. rules of every backend; 2. candidates; 3. costs and search; then the searched plan and the baselines run end to end,
and the best is the `Plan` that is returned. Phase 4 is the plan's own (`Plan.compile`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from collage import plugins
from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.compile.tuning import tune_kernels
from collage.confirm.contest import SEARCHED
from collage.confirm.correction import Refined, refine
from collage.confirm.latencies import Latencies
from collage.confirm.launches import launch_notes
from collage.confirm.recall import Contest
from collage.confirm.ties import simplest, tie_notes
from collage.cost import Cost
from collage.errors import NoCoverError, SearchInterrupted
from collage.estimate import CostEstimator, Workload
from collage.frontend import load
from collage.graph.candidates import HOST, CandidatePartition, CandidateSet
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.interrupt import interruptible
from collage.measure.plan_runner import PlanRunner
from collage.measure.protocol import candidate_protocol, end_to_end
from collage.measure.reference import ReferenceRun
from collage.measure.transitions import transition_costs
from collage.measure.workloads import WorkloadFactory
from collage.plan import Plan
from collage.planned.data import PlannedPartition, PlanRound
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.runtime.threads import configure_threads, default_threads
from collage.search import CostTable, LatencyTable, Partitioning, Searcher, SearchProblem
from collage.search.coalescing import coalesced
from collage.search.single_backend import single_backend
from collage.search.thread_pools import shared_pools

#: How often what a search put side by side is joined and costed; the next search may put other things side by side.
_COALESCING_ROUNDS = 4


def partition(
    model: Any,
    backends: Sequence[str | Backend] | None = None,
    searcher: str | Searcher = "dijkstra",
    estimator: str | CostEstimator = "measured",
    *,
    device: str = "cpu",
    records: str | Path | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Sequence[np.ndarray] | None = None,
    confirm_end_to_end: bool = True,
    correction_rounds: int = 3,
    budget_s: float | None = None,
    seed: int = 0,
    searcher_parameters: Mapping[str, Any] | None = None,
    estimator_parameters: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> Plan:
    """Find which backend should run which part of a network.

    Parameters
    ----------
    model: what `collage.load` takes, or what it gave.
    backends: names or instances; None is every backend of the device that is available here. A name may leave out the
        device: "tvm" is "tvm-cuda" on "cuda". Those of which the estimator knows nothing are left out, with a note.
    searcher, estimator: a name or an instance.
    device: what the network is to run on, "cpu" or "cuda".
    records: path of the records database; None is the default one in the user's cache folder.
    threads: number of threads of the deployment; None is all processors of this process.
    shapes: input name -> shape, for dynamic dimensions.
    inputs: arrays to run candidates on; None makes legal random ones.
    confirm_end_to_end: whether the plan is run against the baselines before it is returned.
    correction_rounds: how often, at most, costs are corrected by what partitions took inside the whole, and the search
        is repeated (`collage.confirm.correction`).
    budget_s: seconds that the search may take; None for no limit.
    seed: of the searcher's and the inputs' random numbers.
    searcher_parameters, estimator_parameters: of their constructors, where they are given by name.
    reporter: told of progress.

    Returns
    -------
    The plan to ship, with its reasons.

    Raises
    ------
    FrontendError, PluginError, BackendUnavailableError, NoCoverError, RecordsError: see there.
    SearchInterrupted: the user pressed Ctrl-C; what was measured is in the records, and the same call resumes.
    """
    reporter = reporter or Reporter()
    threads = threads or default_threads()
    configure_threads(threads)
    with interruptible(), RecordDatabase(records) as database:
        chosen = resolve_backends(backends, device)
        search_with: Searcher = plugins.load("searchers", searcher, **searcher_parameters or {})
        estimate_with: CostEstimator = plugins.load("estimators", estimator, **estimator_parameters or {})
        estimate_with = estimate_with.bind(database, reporter)
        # Where nothing is known of any of them, the estimator itself says so when it is asked.
        known = {name: backend for name, backend in chosen.items() if estimate_with.knows(name)} or chosen
        left_out = [
            f"{type(estimate_with).__name__} knows no costs of {name}, which was left out: train it on records of that "
            "backend, or choose another estimator"
            for name in chosen
            if name not in known
        ]
        module = load(model, shapes, device)
        session = _Session(module, known, threads, database, inputs, seed, reporter, device, left_out)
        try:
            return session.run(search_with, estimate_with, confirm_end_to_end, correction_rounds, budget_s)
        except KeyboardInterrupt:
            raise SearchInterrupted(
                f"interrupted; what was measured is kept in {database.path}, and the same command goes on from there"
            ) from None
        finally:
            reporter.close()


class _Session:
    """One network on its way through the phases."""

    def __init__(
        self,
        module: Any,
        backends: Mapping[str, Backend],
        threads: int,
        database: RecordDatabase,
        inputs: Sequence[np.ndarray] | None,
        seed: int,
        reporter: Reporter,
        device: str = "cpu",
        notes: Sequence[str] = (),
    ) -> None:
        self.module = module
        self.notes = notes
        self.backends = backends
        self.threads = threads
        self.database = database
        self.seed = seed
        self.reporter = reporter
        self.device = device
        self.network = structure_hash(describe_module(module))
        self.graph = read_graph(module)
        self.reference = ReferenceRun(module, self.graph, threads, inputs, seed)
        self.workloads = WorkloadFactory(module, self.graph, backends, threads, self.reference.values)
        self.costed: set[Workload] = set()

    def run(
        self, searcher: Searcher, estimator: CostEstimator, confirmed: bool, rounds: int, budget_s: float | None
    ) -> Plan:
        self.reporter.stage("enumerating candidates")
        specs = [PartitionSpec(backend.rule(), backend.name) for backend in self.backends.values()]
        candidates = gather_candidates(self.graph, specs)

        def fewest(backend: str) -> Sequence[CandidatePartition]:
            """The cover of fewest partitions that a backend has without the others."""
            equal = CostTable(lambda asked: [Cost(1.0)] * len(asked))
            return searcher.search(SearchProblem(self.graph, candidates.of_backends([backend]), equal)).candidates

        tune_kernels(self.module, self.graph, self.backends, self.threads, fewest, self.reporter)
        with self._runner() as runner:
            latencies = Latencies(self.network, self.backends, runner, self.database) if confirmed else None
            problem = SearchProblem(
                graph=self.graph,
                candidates=candidates,
                cost_table=CostTable(
                    lambda asked: self._estimate(asked, estimator),
                    self.workloads.of,
                    lambda asked: self._bounds(asked, estimator),
                ),
                transitions=self._transitions(estimator),
                priorities={name: backend.priority for name, backend in self.backends.items()},
                latency_table=LatencyTable(latencies, latencies.again) if latencies else LatencyTable(),
                budget_s=budget_s,
                seed=self.seed,
                progress=lambda line: self.reporter.step(line, 0),
            )
            found, problem = self._search(searcher, problem)
            alone = single_backend(plugins.load("searchers", "dijkstra"), problem, self.backends.values())
            baselines = {f"{name} alone": cover for name, cover in alone.items()}
            if not confirmed:
                return self._plan(searcher, estimator, found, problem, *simplest(problem, found, baselines))
            contest = Contest(self.network, self.backends, self.threads, self.database, runner)

            # A searcher that went by end-to-end latencies has no need of corrected costs.
            searches = [partial(self._search_some, searcher, names) for names in self._sets_of_backends()]
            refined = refine(
                problem, searches, found, baselines, contest.run, 0 if problem.latency_table.used else rounds
            )
            searched, choice = refined.answer.partitioning, refined.answer.confirmation.shipped
            ships = searched if choice == SEARCHED else baselines.get(choice)
            return self._plan(searcher, estimator, searched, refined.problem, choice, ships, refined)

    def _transitions(self, estimator: CostEstimator) -> Mapping[tuple[str, str], float]:
        told = estimator.transitions(list(self.backends), self.threads)
        if told is not None:
            return told
        protocol: Any = estimator.protocol or candidate_protocol(self.device)
        backends = list(self.backends.values())
        return transition_costs(
            backends, self.threads, self.database, protocol, self.reporter, measure=estimator.uses_device
        )

    def _sets_of_backends(self) -> list[frozenset[str]]:
        """All of them, then those that share a pool of threads."""
        return [frozenset(self.backends), *shared_pools(self.backends.values())]

    def _search_some(self, searcher: Searcher, backends: frozenset[str], problem: SearchProblem) -> Partitioning | None:
        """The placement over some of the backends; None where they have none."""
        try:
            return self._search(searcher, replace(problem, candidates=problem.candidates.of_backends(backends)))[0]
        except NoCoverError:
            return None

    def _search(self, searcher: Searcher, problem: SearchProblem) -> tuple[Partitioning, SearchProblem]:
        """Search and coalesce by turns, until no union of neighbouring partitions is new; the answer, and the problem
        with all candidates that came up.
        """
        found = searcher.search(problem)
        for _ in range(_COALESCING_ROUNDS):
            if problem.latency_table.used:
                break
            unions = coalesced(self.graph, found, problem.candidates, self.backends)
            if not unions:
                break
            problem = replace(problem, candidates=CandidateSet([*problem.candidates, *unions]))
            found = searcher.search(problem)
        return found, problem

    def _runner(self) -> PlanRunner:
        return PlanRunner(
            self.module,
            self.graph,
            self.backends,
            self.threads,
            self.reference.inputs,
            self.reference.outputs,
            self.reporter,
            end_to_end(self.device),
            self.device,
        )

    def _plan(
        self,
        searcher: Searcher,
        estimator: CostEstimator,
        found: Partitioning,
        problem: SearchProblem,
        choice: str,
        shipped: Partitioning | None,
        refined: Refined | None = None,
    ) -> Plan:
        """The plan of what ships (None: TVM's own build), beside what was found."""
        confirmation = refined.answer.confirmation if refined else None
        return Plan(
            module=self.module,
            network=self.network,
            choice=choice,
            partitions=self._planned(shipped, problem) if shipped else (),
            backends=self.backends,
            versions={name: backend.version() for name, backend in self.backends.items()},
            threads=self.threads,
            device=self.device,
            searched_cost=found.cost,
            lower_bound=found.lower_bound,
            corrected_cost=Cost(refined.corrected) if refined else Cost.unknown(),
            rounds=tuple(map(PlanRound.of, refined.rounds)) if refined else (),
            confirmation=confirmation,
            searcher=repr(searcher),
            estimator=type(estimator).__name__,
            notes=(
                *found.notes,
                *(tie_notes(found, choice) if confirmation is None else ()),
                *self.notes,
                *estimator.notes(self.costed),
                *launch_notes(confirmation),
            ),
        )

    def _estimate(self, asked: Sequence[CandidatePartition], estimator: CostEstimator) -> list[Cost]:
        workloads = [self.workloads.of(candidate) for candidate in asked]
        unique = list(dict.fromkeys(workloads))
        costs = dict(zip(unique, estimator.estimate(unique), strict=True))
        self.costed.update(unique)
        return [costs[w] for w in workloads]

    def _bounds(
        self, asked: Sequence[CandidatePartition], estimator: CostEstimator
    ) -> list[tuple[float, float]] | None:
        workloads = [self.workloads.of(candidate) for candidate in asked]
        unique = list(dict.fromkeys(workloads))
        told = estimator.bounds(unique)
        if told is None:
            return None
        bounds = dict(zip(unique, told, strict=True))
        return [bounds[w] for w in workloads]

    def _planned(self, shipped: Partitioning, problem: SearchProblem) -> tuple[PlannedPartition, ...]:
        same: dict[int, list[CandidatePartition]] = {}
        for candidate in problem.candidates:
            same.setdefault(candidate.sub_graph.inside.bits, []).append(candidate)
        planned = []
        for candidate in shipped.candidates:
            inside = candidate.sub_graph.inside
            others = [c for c in same.get(inside.bits, []) if c.backend not in (candidate.backend, HOST)]
            # What a search did not cost is not measured for the table's sake.
            others = [c for c in others if self.workloads.of(c) in self.costed]
            finite = [(problem.cost(c), c.backend) for c in others if problem.cost(c).is_finite]
            cost, runner_up = min(finite, key=lambda pair: pair[0].seconds, default=(Cost.unknown(), ""))
            planned.append(
                PlannedPartition(
                    backend=candidate.backend,
                    nodes=tuple(inside),
                    operators=tuple(self.graph.nodes[i].op for i in inside),
                    composites=tuple((label, tuple(nodes)) for label, nodes in candidate.composites),
                    cost=problem.cost(candidate),
                    runner_up=runner_up,
                    runner_up_cost=cost,
                )
            )
        return tuple(planned)
