"""partition(): the phases of RFC 0062 in order, then the decision which plan ships.

`enumerate_candidates` is phases 1 and 2, `search` is phase 3. `decide`, or `decide_within` with an error budget, then
chooses the plan, and the result is a `Plan`. Phase 4, building the result, is `Plan.compile`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from collage import plugins
from collage.accuracy.allowance import Wish
from collage.accuracy.budget import Metric
from collage.accuracy.grant import granted
from collage.accuracy.samples import read_sample
from collage.annotations.places import places_of
from collage.api.effort import Effort
from collage.api.offer import offer
from collage.api.plan import Plan
from collage.backends.base import Backend
from collage.backends.tvm.target import target_text
from collage.compile.rewrite import whole_files
from collage.compile.tuning import tune_kernels
from collage.confirm.contest import Contest
from collage.confirm.decision import decide
from collage.confirm.latencies import Latencies
from collage.confirm.launches import launch_notes
from collage.confirm.on_board import BoardPlans, decide_on_board
from collage.confirm.within_budget import decide_within
from collage.cost.estimator import CostEstimator
from collage.cost.transition import transition_notes
from collage.deployed.plan_runner import PlanRunner
from collage.deployed.protocol import EndToEnd
from collage.deployed.rivals import rivals_of
from collage.errors import CollageError, FrontendError
from collage.frontend import input_specs, load
from collage.frontend.source import notes_of, onnx_file
from collage.graph.candidates import CandidateSet
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.working_set import working_set
from collage.interrupt import interruptible, resumable
from collage.measure.boards import board_at
from collage.measure.fleet import workers_at
from collage.measure.pool import shared_pool
from collage.measure.reference import ReferenceRun
from collage.measure.runner import kept_processes
from collage.measure.workloads import WorkloadCosts, WorkloadFactory
from collage.planned.data import PlanRound
from collage.planned.explanation import planned_candidates, planned_graph
from collage.planned.from_decision import (
    planned_accuracy,
    planned_copies,
    planned_frontier,
    planned_partitions,
    planned_ranges,
    planned_transitions,
)
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.rules.gather import gather_candidates
from collage.runtime.device_info import is_host
from collage.runtime.threads import configure_threads, default_threads
from collage.search import CostTable, LatencyTable, Searcher, SearchProblem
from collage.search.phase import fewest_partitions, greedy_loss, search


def partition(
    model: Any,
    backends: Sequence[str | Backend] | None = None,
    searcher: str | Searcher = "dijkstra",
    estimator: str | CostEstimator | None = None,
    *,
    device: str = "cpu",
    devices: Sequence[str] | None = None,
    records: str | Path | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Any = None,
    max_error: float | None = None,
    calibration: Any = None,
    precisions: Iterable[str] | None = None,
    metric: Metric | None = None,
    max_drop: float | None = None,
    validation: tuple[Any, Sequence[object]] | None = None,
    confirm_end_to_end: bool = True,
    effort: str | Effort = "normal",
    correction_rounds: int | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    searcher_parameters: Mapping[str, Any] | None = None,
    estimator_parameters: Mapping[str, Any] | None = None,
    workers: str | None = None,
    runner: str | None = None,
    target: str | None = None,
    reporter: Reporter | None = None,
) -> Plan:
    """Find which backend should run which part of a network.

    Parameters
    ----------
    model
        The path of an ONNX file, an `onnx.ModelProto`, a `torch.export.ExportedProgram`, a Relax module, or what
        `collage.load` returned.
    backends
        Names or instances; None is every available backend of the device. A name may leave out the device: "tvm" is
        "tvm-cuda" on "cuda". Backends of which the estimator knows nothing are left out, with a note.
    searcher
        A name or an instance (docs/SEARCH.md).
    estimator
        A name or an instance; None is the effort's.
    device
        The device that the network is to run on, "cpu" or "cuda".
    devices
        Several devices, such as ["cuda", "cpu"]; inputs and results are on the first one. None is `device` alone.
    records
        Path of the records database, or the address of one of PostgreSQL; None is the default one in the user's cache
        folder.
    threads
        Number of threads of the deployment; None is all processors of this process, or of the board.
    shapes
        Input name -> shape, for inputs with dynamic dimensions.
    inputs
        What candidates and plans run on: one array per input, in the network's order; or by name, as a mapping or the
        path of an `.npz` file. None makes legal random ones, or takes the first calibration sample.
    max_error
        Error budget: the largest relative L2 error of each output, such as 0.01, on held-out samples. With None, and
        no `max_drop`, everything is computed in float32.
    calibration
        Samples: the path of an `.npz` file with an array for each input, or arrays (`collage.accuracy.samples`). Every
        second one is held out, unless there are validation samples.
    precisions
        Precisions that may be used, of "float32", "bf16" and "int8"; None is all that the processor has instructions
        for.
    metric, max_drop, validation
        Error budget by a metric, instead of `max_error`. `metric(outputs, labels) -> float` judges one sample; more is
        better. `max_drop` is what it may lose. `validation` is (samples, labels) on which it is measured.
    confirm_end_to_end
        Whether whole plans run against baselines and rivals before one is returned (docs/CONTEST.md).
    effort
        How much is measured: "quick" predicts costs, "normal" measures what could still change the plan, "thorough"
        measures every candidate (`collage.api.effort`).
    correction_rounds
        How often, at most, costs are corrected by the times of partitions inside the whole, and the search is repeated
        (`collage.confirm.correction`); None is the effort's.
    budget_s
        Seconds that the search may take, costing included; None for no limit.
    seed
        Seed of the random numbers of the searcher and of random inputs.
    searcher_parameters, estimator_parameters
        Parameters of their constructors, where they are given by name, or by the effort.
    workers
        Address of a Dask scheduler, such as "tcp://host:8786": its workers on machines like this one build and time
        candidates (docs/SCALE.md). Transitions and whole plans are timed on this host. None is this host alone.
    runner
        Address of boards at a tracker of TVM's RPC, as "rpc://tracker:9190/key": the plan is for such a board, and
        everything is timed there (docs/SCALE.md). None is this machine.
    target
        TVM's target of the board, as "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"; None asks the board.
    reporter
        Shows progress.

    Returns
    -------
    Plan
        The plan that ships, with its reasons.

    Raises
    ------
    FrontendError
        The model cannot be read, or has operators or shapes that are not supported.
    PluginError
        A name is unknown, or a plug-in does not load or refuses a parameter.
    BackendUnavailableError
        A backend was asked for and cannot be used here, or none can.
    NoCoverError
        No backend can run some operator.
    RecordsError
        The records database cannot be read or written.
    CollageError
        Parameters contradict each other, or no plan runs and gives the right numbers.
    SearchInterrupted
        The user pressed Ctrl-C; what was measured is in the records, and the same call resumes.
    """
    reporter = reporter or Reporter()
    devices = tuple(devices or [device])
    device = devices[0]
    effort = Effort.of(effort)
    correction_rounds = effort.correction_rounds if correction_rounds is None else correction_rounds
    if len(devices) > 1 and not all(map(is_host, devices)):
        correction_rounds = 0  # an accelerator's clock does not tell what the host takes beside it
    with (
        interruptible(),
        RecordDatabase(records) as database,
        closing(reporter),
        resumable(database.name),
        workers_at(workers, reporter, devices) as fleet,
        board_at(runner, target, reporter, devices, workers) as board,
        kept_processes(),
    ):
        threads = threads or (default_threads() if board is None else board.device.cores)
        configure_threads(threads if board is None else default_threads())
        search_with: Searcher = plugins.load("searchers", searcher, **searcher_parameters or {})
        wish = Wish.of(
            max_error=max_error,
            metric=metric,
            max_drop=max_drop,
            calibration=calibration,
            validation=validation,
            precisions=precisions,
        )
        if wish is not None and (devices != ("cpu",) or board is not None):
            where = ", ".join(devices) if board is None else "a board"
            raise CollageError(f"an error budget is for a plan on the CPU of this machine alone, not on {where}")
        offered = offer(
            backends,
            estimator,
            estimator_parameters or {},
            effort,
            devices,
            threads,
            wish,
            database,
            reporter,
            fleet,
            board,
        )
        chosen, estimate_with = offered.backends, offered.estimator
        if estimate_with.uses_device:
            shared_pool().start(default_threads())
        module = load(model, shapes, device)
        _require_devices(module, devices)
        graph, network = read_graph(module), structure_hash(describe_module(module))
        allowance = None if wish is None else wish.allowance(module)
        if inputs is not None:
            inputs = read_sample(inputs, input_specs(module))
        elif allowance is not None:
            inputs = allowance.searched_with[0]
        reference = ReferenceRun(module, graph, threads, inputs, seed)
        grant = None
        if allowance is not None:
            module, grant = granted(allowance, module, graph, chosen, threads, reference, database, reporter)
            graph = read_graph(module)

        reporter.stage("enumerating candidates")
        candidates = enumerate_candidates(graph, chosen)
        alone = partial(fewest_partitions, search_with, graph, candidates)
        run_here = confirm_end_to_end and board is None
        tune_kernels(module, graph, chosen, threads, alone, reporter)

        workloads = WorkloadFactory(module, graph, chosen, threads, reference.values, working_set(graph))
        costs = WorkloadCosts(estimate_with, workloads.of)
        transitions = offered.transitions(database, reporter)
        with PlanRunner(
            module,
            graph,
            chosen,
            threads,
            reference.inputs,
            lambda: reference.outputs,
            reporter,
            EndToEnd(race_rounds=effort.race_rounds, final_rounds=effort.final_rounds),
            device,
            seed,
        ) as plan_runner:
            latencies = Latencies(network, chosen, plan_runner, database)
            problem = SearchProblem(
                graph=graph,
                candidates=candidates,
                cost_table=CostTable(costs.costs, workloads.of, costs.intervals),
                transitions=transitions,
                priorities={name: backend.priority for name, backend in chosen.items()},
                latency_table=LatencyTable(latencies, latencies.again) if run_here else LatencyTable(),
                crossings=offered.crossings(),
                budget_s=budget_s,
                seed=seed,
                progress=lambda line: reporter.step(line, 0),
            )
            contest = None
            if run_here:
                contest = Contest(
                    network, chosen, database, plan_runner, rivals_of(onnx_file(model, plan_runner.folder), devices)
                )
            within, loss = None, math.nan
            if grant is None:
                with estimate_with.session():
                    searched = search(search_with, problem, chosen)
                loss = greedy_loss(searched)
                if board is None:
                    files = whole_files(module, graph, chosen) if devices == ("cpu",) else {}
                    decision = decide(
                        search_with, searched, chosen, contest, correction_rounds, estimate_with.session, files
                    )
                else:
                    plans = BoardPlans(module, graph, chosen, threads, reference, board, reporter)
                    decision = decide_on_board(searched, chosen, plans if confirm_end_to_end else None)
            else:
                decision, within = decide_within(
                    grant, search_with, problem, chosen, contest, correction_rounds, estimate_with.session
                )
        reporter.finish()
        return Plan(
            module=module,
            network=network,
            choice=decision.choice,
            partitions=planned_partitions(decision, costs),
            copies=planned_copies(decision),
            transitions=planned_transitions(transitions, {c.backend for c in decision.searched.candidates}),
            backends=chosen,
            versions={name: backend.version() for name, backend in chosen.items()},
            threads=threads,
            device=device,
            target="" if board is None else target_text(board.target),
            inputs={spec.name: spec.shape for spec in input_specs(module)},
            searched_cost=decision.searched.cost,
            greedy_loss=loss,
            lower_bound=decision.searched.lower_bound,
            corrected_cost=decision.corrected_cost,
            rounds=tuple(map(PlanRound.of, decision.rounds)),
            confirmation=decision.confirmation,
            accuracy=None if within is None else planned_accuracy(within),
            frontier=() if within is None else planned_frontier(within),
            ranges=planned_ranges(decision.shipped, graph, chosen),
            graph=planned_graph(module, graph),
            candidates=planned_candidates(decision, costs),
            searcher=repr(search_with),
            estimator=type(estimate_with).__name__,
            notes=(
                *notes_of(module),
                *decision.notes,
                *offered.notes,
                *transition_notes(transitions),
                *costs.notes(),
                *launch_notes(decision.confirmation),
            ),
        )


def enumerate_candidates(graph: DataflowGraph, backends: Mapping[str, Backend]) -> CandidateSet:
    """Phases 1 and 2: the candidates that the backends' rules find, and the nodes that may stay on the host.

    Raises
    ------
    NoCoverError
        No backend takes some operator.
    """
    specs = [PartitionSpec(backend.partition_rule, name) for name, backend in backends.items()]
    return gather_candidates(graph, specs, {name: backend.device for name, backend in backends.items()})


def _require_devices(module: Any, devices: Sequence[str]) -> None:
    """Raise FrontendError where the module asks for a device that it is not to run on."""
    missing = sorted(set(places_of(module)) - {"", *devices})
    if missing:
        asked = json.dumps([*devices, *missing])
        raise FrontendError(f"the module has values on {', '.join(missing)}: give devices={asked}")
