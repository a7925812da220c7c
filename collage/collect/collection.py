"""collect(): a designed set of measurements to train cost models on.

Measured are the candidates of some networks, variants of them (the same operators on other shapes,
`collage.collect.variants`), and candidates of blocks that belong to no network (`collage.collect.blocks.families`), as
`collage.collect.sampling` draws them.

One structure is measured once; what the records hold is not measured again; the same seed draws the same variants and
blocks, so that an interrupted collection goes on where it was.
"""

from __future__ import annotations

import functools
import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage import plugins
from collage.accuracy.calibration import calibrated
from collage.annotations.precision import FLOAT32, INT8
from collage.backends.base import Backend
from collage.backends.resolve import resolve_on
from collage.collect.blocks.families import Family, draw_network, families_named
from collage.collect.outliers import Observation, better, outliers
from collage.collect.sampling import Alternatives, by_group, draw_candidates, draw_variants, in_int8, likeliest
from collage.collect.variants import extents_of, skeleton
from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload, estimates
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.interrupt import interruptible, resumable
from collage.measure.boards import board_at
from collage.measure.fleet import workers_at
from collage.measure.reference import ReferenceRun
from collage.measure.transitions import transition_costs
from collage.measure.workers import Workers
from collage.measure.workloads import WorkloadFactory
from collage.progress import Reporter
from collage.records import RecordDatabase
from collage.rules.base import PartitionSpec
from collage.runtime.threads import configure_threads, default_threads

#: Structures between two looks at the clock and at what was measured; fewer when there is a time limit.
_BATCH, _BATCH_IN_A_HURRY = 24, 6
#: With a cost model, so many variants are made for each that is drawn.
_POOL = 4
#: Blocks between two looks at the clock, and structures measured of each.
_BLOCKS, _PER_BLOCK = 8, 8


@dataclass(frozen=True)
class Collected:
    """Counts of a collection, in workloads (a structure on a backend).

    Attributes
    ----------
    known
        Were in the records already.
    measured
        Are new in the records.
    invalid
        Of those, how many a backend could not run.
    repeated
        Were measured a second time, because the first was an outlier.
    replaced
        Of those, how many have the second in the records.
    variants
        Structures that were drawn around the networks.
    designed
        Structures that were drawn from families of blocks.
    complete
        False when the time was up before everything was measured.
    notes
        On the workers that measured.
    """

    known: int
    measured: int
    invalid: int
    repeated: int
    replaced: int
    variants: int
    designed: int
    complete: bool
    notes: tuple[str, ...] = ()


def collect(
    models: Sequence[Any],
    backends: Sequence[str | Backend] | None = None,
    *,
    records: str | Path | None = None,
    samples: int = 500,
    designed: int = 0,
    families: Sequence[str] | None = None,
    budget_s: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    device: str = "cpu",
    devices: Sequence[str] | None = None,
    model: str | Path | None = None,
    precisions: Collection[str] = (),
    workers: str | None = None,
    runner: str | None = None,
    target: str | None = None,
    reporter: Reporter | None = None,
) -> Collected:
    """Measure the candidates of networks, variants of them, and what changes of backend cost, into the records.

    Parameters
    ----------
    models
        Each what `collage.load` takes.
    backends
        Names or instances; None is every backend of the device that is available here.
    records
        Path of the records database, or the address of one of PostgreSQL; None is the default one in the user's cache
        folder.
    samples
        Number of variants, each of which is measured on every backend that takes it.
    designed
        Number of blocks that belong to no network, of which some candidates each are measured after all else.
    families
        Names of the kinds of blocks (`collage.collect.blocks.families`), which take turns; None is all.
    budget_s
        Seconds after which nothing more is started; None for no limit.
    seed
        Of what is drawn.
    threads
        Number of threads of the deployment; None is all processors of this process, or of the board.
    device
        What the workloads run on, "cpu" or "cuda".
    devices
        Several of them, such as ["cuda", "cpu"]; networks are in the layout of the first one. None is `device` alone.
    model
        A cost model's file; variants are drawn more often where it is unsure or wrong.
    precisions
        Other than float32: with "bf16", where `backends` is None, backends that compute in it; with "int8" candidates
        of graph backends with their products in eight bits, too (of networks and of blocks, not of variants: nothing is
        known of their ranges).
    workers
        Address of a Dask scheduler, whose workers build and time the candidates; None is this host alone.
    runner, target
        Address of boards and their target, as of `collage.partition`: the candidates are timed there.
    reporter
        Shows progress.

    Raises
    ------
    CollageError
        There is no family of a name.
    FrontendError, PluginError, BackendUnavailableError, RecordsError
        See there.
    SearchInterrupted
        The user pressed Ctrl-C; what was measured is in the records, and the same call resumes.
    """
    reporter = reporter or Reporter()
    with (
        interruptible(),
        RecordDatabase(records) as database,
        closing(reporter),
        resumable(database.name),
        workers_at(workers, reporter, devices or [device]) as fleet,
        board_at(runner, target, reporter, devices or [device], workers) as board,
    ):
        threads = threads or (default_threads() if board is None else board.device.cores)
        configure_threads(threads if board is None else default_threads())
        kinds = families_named(families)
        places = tuple(devices or [device])
        chosen = resolve_on(backends, places, (FLOAT32, *precisions))
        notes: tuple[str, ...] = ()
        if board is not None:
            chosen, notes = board.backends(chosen)
        candidates_of = functools.partial(
            _candidates, backends=chosen, device=places[0], threads=threads, seed=seed, int8=INT8 in precisions
        )
        learned = None if model is None else plugins.load("estimators", "learned", model=model)
        measuring = _Measuring(database, budget_s, reporter, fleet or board, notes)
        rng = random.Random(seed)
        found: list[Alternatives] = []
        for network in models:
            reporter.stage("enumerating candidates")
            found += candidates_of(network)
        own = _distinct(found)
        wanted = samples if own else 0
        variants: list[Alternatives] = []
        if learned is None:  # what is drawn depends on nothing that is measured
            variants = _shown(draw_variants(own, chosen, threads, wanted, rng), wanted, reporter)
            complete = measuring.all([*own, *variants])
        else:
            complete = measuring.all(own)
            if complete:
                pool = _shown(draw_variants(own, chosen, threads, _POOL * wanted, rng), wanted, reporter)
                variants = likeliest(pool, own, wanted, learned, measuring.cached, rng)
                complete = measuring.all(variants)
        if models and complete:  # with them, searches can be replayed
            for place in places:
                own_backends = [backend for backend in chosen.values() if backend.device == place]
                transition_costs(own_backends, threads, database, reporter)
        blocks = 0
        for start in range(0, designed, _BLOCKS):
            if not complete or measuring.time_is_up:
                complete = False
                break
            numbers = range(start, min(designed, start + _BLOCKS))
            drawn = _blocks(numbers, kinds, seed, candidates_of, reporter)
            measuring.once(drawn)
            blocks += len(drawn)
        return measuring.collected(len(variants), blocks, complete)


def _candidates(
    network: Any, backends: Mapping[str, Backend], device: str, threads: int, seed: int, int8: bool = False
) -> list[Alternatives]:
    """The candidates of a network, by structure. Nothing is searched: what no backend takes is left out."""
    module = load(network, device=device)
    graph = read_graph(module)
    reference = ReferenceRun(module, graph, threads, seed=seed)
    if int8:
        module = calibrated(module, graph, [reference])
        graph = read_graph(module)
    factory = WorkloadFactory(module, graph, backends, threads, reference.values)
    specs = [PartitionSpec(backend.partition_rule, name) for name, backend in backends.items()]
    found = [candidate for spec in specs for candidate in spec.candidates(graph)]
    if int8:
        found += [labelled for c in found for labelled in in_int8(c, backends[c.backend])]
    unique = dict.fromkeys(map(factory.of, found))
    groups: dict[str, Alternatives] = {}
    for workload in unique:
        groups.setdefault(workload.structure, []).append(workload)
    return list(groups.values())


def _distinct(groups: Iterable[Alternatives]) -> list[Alternatives]:
    """The first alternatives of each structure."""
    found: dict[str, Alternatives] = {}
    for alternatives in groups:
        found.setdefault(alternatives[0].structure, alternatives)
    return list(found.values())


def _shown(draws: Iterable[Alternatives], wanted: int, reporter: Reporter) -> list[Alternatives]:
    """All that is drawn, while progress is shown; as many as are wanted, or more."""
    reporter.stage("drawing variants", wanted)
    pool = []
    for alternatives in draws:
        pool.append(alternatives)
        reporter.step(alternatives[0].label.partition(" ")[2], 1 if len(pool) <= wanted else 0)
    if len(pool) < wanted:
        reporter.note(f"the networks have no more than {len(pool)} variants that could be found")
    return pool


def _blocks(
    numbers: range,
    kinds: Sequence[Family],
    seed: int,
    candidates_of: Callable[[Any], list[Alternatives]],
    reporter: Reporter,
) -> list[Alternatives]:
    """Some candidates of each of these blocks."""
    reporter.stage("drawing blocks", len(numbers))
    found: list[Alternatives] = []
    for number in numbers:
        name, module = draw_network(seed, number, kinds)
        reporter.step(name, 1)
        found += draw_candidates(candidates_of(module), _PER_BLOCK, random.Random(f"{seed}.{number}.candidates"))
    return _distinct(found)


class _Measuring:
    """Measures what the records do not hold, outliers twice, and counts what it does."""

    def __init__(
        self,
        database: RecordDatabase,
        budget_s: float | None,
        reporter: Reporter,
        workers: Workers | None,
        notes: tuple[str, ...] = (),
    ) -> None:
        cached: CostEstimator = plugins.load("estimators", "cached", records=database)
        self.cached = cached if workers is None else cached.on(workers)
        self._notes = notes
        self._database = database
        self._reporter = reporter
        self._workers = workers
        self._deadline = math.inf if budget_s is None else time.monotonic() + budget_s
        self._batch = _BATCH if budget_s is None else _BATCH_IN_A_HURRY
        self._observations: list[Observation] = []
        self._known = self._measured = self._invalid = self._repeated = self._replaced = 0

    @property
    def time_is_up(self) -> bool:
        return time.monotonic() >= self._deadline

    def collected(self, variants: int, designed: int, complete: bool) -> Collected:
        """All counts."""
        return Collected(
            known=self._known,
            measured=self._measured,
            invalid=self._invalid,
            repeated=self._repeated,
            replaced=self._replaced,
            variants=variants,
            designed=designed,
            complete=complete,
            notes=(*self._notes, *(self._workers.notes() if self._workers is not None else ())),
        )

    def all(self, groups: Sequence[Alternatives]) -> bool:
        """Measure in batches, and the outliers of each again; False when the time was up before the end."""
        unknown = self._unknown(groups)
        for start in range(0, len(unknown), self._batch):
            if self.time_is_up:
                return False
            workloads = [w for alternatives in unknown[start : start + self._batch] for w in alternatives]
            before = len(self._observations)
            costs = self._measure(workloads)
            finite = [w for w, cost in zip(workloads, costs, strict=True) if cost.is_finite]
            flags = outliers(self._observations)[before:]
            again = [w for w, is_outlier in zip(finite, flags, strict=True) if is_outlier]
            if again and not self.time_is_up:
                self._repeat(again)
        return True

    def once(self, groups: Sequence[Alternatives]) -> None:
        """Measure in one batch, outliers too."""
        unknown = self._unknown(groups)
        if unknown:
            self._measure([workload for alternatives in unknown for workload in alternatives])

    def _unknown(self, groups: Sequence[Alternatives]) -> list[Alternatives]:
        """What the records do not hold of each group; groups of which they hold all are left out."""
        unknown: list[Alternatives] = []
        for alternatives, costs in zip(groups, by_group(self.cached, groups), strict=True):
            new = [w for w, cost in zip(alternatives, costs, strict=True) if cost.is_unknown]
            self._known += len(alternatives) - len(new)
            self._remember(alternatives, costs)
            if new:
                unknown.append(new)
        return unknown

    def _measure(self, workloads: Sequence[Workload]) -> list[Cost]:
        found = estimates(self._measured_by(self._database), workloads)
        costs = [found[workload] for workload in workloads]
        self._measured += len(workloads)
        self._invalid += sum(cost.is_invalid for cost in costs)
        self._remember(workloads, costs)
        return costs

    def _repeat(self, workloads: Sequence[Workload]) -> None:
        """A second measurement, past the records that know the first; of the two the better converged one counts."""
        self._repeated += len(workloads)
        with tempfile.TemporaryDirectory(prefix="collage-") as folder, RecordDatabase(Path(folder) / "r.db") as second:
            estimates(self._measured_by(second), workloads)
            for record in second.matching(kind="candidate"):
                first = self._database.get(record.key)
                self._database.put(record)
                self._replaced += first is not None and better(first.cost, record.cost)

    def _measured_by(self, database: RecordDatabase) -> CostEstimator:
        estimator: CostEstimator = plugins.load("estimators", "measured", records=database, reporter=self._reporter)
        return estimator if self._workers is None else estimator.on(self._workers)

    def _remember(self, workloads: Sequence[Workload], costs: Sequence[Cost]) -> None:
        for workload, cost in zip(workloads, costs, strict=True):
            if cost.is_finite:
                name, description = workload.backend.name, workload.description
                family = (name, skeleton(description), workload.composites)
                self._observations.append(Observation(name, family, extents_of(description), cost))
