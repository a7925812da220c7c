"""collect(): a designed set of measurements to train cost models on.

The candidates of some networks, and variants of them: the same operators on other shapes (`collage.collect.variants`).
And candidates of blocks that belong to no network (`collage.collect.blocks.families`). Which,
`collage.collect.sampling` says.

One structure is measured once; what the records hold is not measured again; the same seed draws the same variants and
blocks, so that an interrupted collection goes on where it was.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collage import plugins
from collage.backends.base import Backend
from collage.backends.resolve import resolve_backends
from collage.collect.blocks.families import Family, draw_network, families_named
from collage.collect.outliers import Point, better, doubtful
from collage.collect.sampling import Rivals, by_group, draw_candidates, draw_variants, likeliest
from collage.collect.variants import extents_of, skeleton
from collage.cost import Cost
from collage.errors import SearchInterrupted
from collage.estimate import CostEstimator, Workload
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.interrupt import interruptible
from collage.measure.protocol import candidate_protocol
from collage.measure.reference import ReferenceRun
from collage.measure.transitions import transition_costs
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
    """What a collection did, in numbers of workloads (a structure on a backend).

    Attributes
    ----------
    known: were in the records already.
    measured: are new in the records.
    invalid: of those, how many a backend could not run.
    doubted: were measured a second time, because the first looked wrong.
    replaced: of those, how many have the second in the records.
    variants: structures that were drawn around the networks.
    designed: structures that were drawn from families of blocks.
    complete: False when the time was up before everything was measured.
    """

    known: int
    measured: int
    invalid: int
    doubted: int
    replaced: int
    variants: int
    designed: int
    complete: bool


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
    model: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Collected:
    """Measure the candidates of networks, variants of them, and what changes of backend cost, into the records.

    Parameters
    ----------
    models: each what `collage.load` takes.
    backends: names or instances; None is every backend of the device that is available here.
    records: path of the records database; None is the default one in the user's cache folder.
    samples: number of variants, each of which is measured on every backend that takes it.
    designed: number of blocks that belong to no network, of which some candidates each are measured after all else.
    families: names of the kinds of blocks (`collage.collect.blocks.families`), which take turns; None is all.
    budget_s: seconds after which nothing more is started; None for no limit.
    seed: of what is drawn.
    threads: number of threads of the deployment; None is all processors of this process.
    device: what the workloads run on, "cpu" or "cuda".
    model: a cost model's file; variants are drawn more often where it is unsure or wrong.
    reporter: told of progress.

    Raises
    ------
    CollageError: there is no family of a name.
    FrontendError, PluginError, BackendUnavailableError, RecordsError: see there.
    SearchInterrupted: the user pressed Ctrl-C; what was measured is in the records, and the same call resumes.
    """
    reporter = reporter or Reporter()
    threads = threads or default_threads()
    configure_threads(threads)
    with interruptible(), RecordDatabase(records) as database:
        turns = families_named(families)
        chosen = resolve_backends(backends, device)
        session = _Collection(chosen, device, threads, database, budget_s, seed, turns, reporter)
        try:
            return session.run(models, samples, designed, model)
        except KeyboardInterrupt:
            raise SearchInterrupted(
                f"interrupted; what was measured is kept in {database.path}, and the same command goes on from there"
            ) from None
        finally:
            reporter.close()


class _Collection:
    """One collection on its way."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        device: str,
        threads: int,
        database: RecordDatabase,
        budget_s: float | None,
        seed: int,
        turns: Sequence[Family],
        reporter: Reporter,
    ) -> None:
        self.backends = backends
        self.device = device
        self.threads = threads
        self.database = database
        self.seed = seed
        self.turns = turns
        self.reporter = reporter
        self.deadline = math.inf if budget_s is None else time.monotonic() + budget_s
        self.batch = _BATCH if budget_s is None else _BATCH_IN_A_HURRY
        self.cached: CostEstimator = plugins.load("estimators", "cached", records=database)
        self.points: list[Point] = []
        self.known = self.measured = self.invalid = self.doubted = self.replaced = 0

    def run(self, models: Sequence[Any], samples: int, designed: int, model: str | Path | None) -> Collected:
        sources: dict[str, Rivals] = {}
        for network in models:
            self.reporter.stage("enumerating candidates")
            for rivals in self._candidates(network):
                sources.setdefault(rivals[0].structure, rivals)
        own = list(sources.values())
        variants: list[Rivals] = []
        if model is None:  # what is drawn depends on nothing that is measured
            variants = self._draw(own, samples, None)
            complete = self._measure_all([*own, *variants])
        else:
            complete = self._measure_all(own)
            if complete:
                variants = self._draw(own, samples, model)
                complete = self._measure_all(variants)
        if models and complete:  # with them, searches can be replayed
            self._measure_transitions()
        drawn = 0
        for start in range(0, designed, _BLOCKS):
            if not complete or time.monotonic() >= self.deadline:
                complete = False
                break
            drawn += self._measure_blocks(range(start, min(designed, start + _BLOCKS)))
        return Collected(
            known=self.known,
            measured=self.measured,
            invalid=self.invalid,
            doubted=self.doubted,
            replaced=self.replaced,
            variants=len(variants),
            designed=drawn,
            complete=complete,
        )

    def _candidates(self, network: Any) -> list[Rivals]:
        module = load(network, device=self.device)
        graph = read_graph(module)
        reference = ReferenceRun(module, graph, self.threads, seed=self.seed)
        factory = WorkloadFactory(module, graph, self.backends, self.threads, reference.values)
        specs = [PartitionSpec(backend.rule(), name) for name, backend in self.backends.items()]
        # Nothing is searched: what no backend takes is left out.
        unique = dict.fromkeys(factory.of(candidate) for spec in specs for candidate in spec.candidates(graph))
        groups: dict[str, Rivals] = {}
        for workload in unique:
            groups.setdefault(workload.structure, []).append(workload)
        return list(groups.values())

    def _measure_blocks(self, numbers: range) -> int:
        """Measure some candidates of each of these blocks, all in one batch; how many structures were drawn."""
        self.reporter.stage("drawing blocks", len(numbers))
        found: dict[str, Rivals] = {}
        for number in numbers:
            name, module = draw_network(self.seed, number, self.turns)
            self.reporter.step(name, 1)
            groups = self._candidates(module)
            for rivals in draw_candidates(groups, _PER_BLOCK, random.Random(f"{self.seed}.{number}.candidates")):
                found.setdefault(rivals[0].structure, rivals)
        workloads = [workload for rivals in found.values() for workload in rivals]
        known = self.cached.estimate(workloads)
        new = [w for w, cost in zip(workloads, known, strict=True) if cost.is_unknown]
        self.known += len(workloads) - len(new)
        if new:
            costs = self._measured(self.database).estimate(new)
            self.measured += len(new)
            self.invalid += sum(cost.is_invalid for cost in costs)
        return len(found)

    def _draw(self, sources: list[Rivals], samples: int, model: str | Path | None) -> list[Rivals]:
        self.reporter.stage("drawing variants", samples)
        rng = random.Random(self.seed)
        count = samples if model is None else _POOL * samples
        pool = []
        for rivals in draw_variants(sources, self.backends, self.threads, count, rng):
            pool.append(rivals)
            self.reporter.step(rivals[0].label.partition(" ")[2], 1 if len(pool) <= samples else 0)
        if len(pool) < samples and sources:
            self.reporter.note(f"the networks have no more than {len(pool)} variants that could be found")
        if model is None:
            return pool
        return likeliest(pool, sources, samples, plugins.load("estimators", "learned", model=model), self.cached, rng)

    def _measure_all(self, groups: list[Rivals]) -> bool:
        """Measure what is not in the records; False when the time was up before the end."""
        unknown: list[Rivals] = []
        for rivals, costs in zip(groups, by_group(self.cached, groups), strict=True):
            new = [w for w, cost in zip(rivals, costs, strict=True) if cost.is_unknown]
            self.known += len(rivals) - len(new)
            self._remember([w for w in rivals if w not in new], [c for c in costs if not c.is_unknown])
            if new:
                unknown.append(new)
        for start in range(0, len(unknown), self.batch):
            if time.monotonic() >= self.deadline:
                return False
            self._measure([w for rivals in unknown[start : start + self.batch] for w in rivals])
        return True

    def _measure(self, workloads: Rivals) -> None:
        costs = self._measured(self.database).estimate(workloads)
        self.measured += len(workloads)
        self.invalid += sum(cost.is_invalid for cost in costs)
        before = len(self.points)
        finite = [w for w, cost in zip(workloads, costs, strict=True) if cost.is_finite]
        self._remember(workloads, costs)
        flags = doubtful(self.points)[before:]
        doubted = [w for w, flag in zip(finite, flags, strict=True) if flag]
        if doubted and time.monotonic() < self.deadline:
            self._measure_again(doubted)

    def _measure_again(self, workloads: Rivals) -> None:
        """A second measurement, into records of its own; of the two the better converged one stays."""
        self.doubted += len(workloads)
        with tempfile.TemporaryDirectory(prefix="collage-") as folder, RecordDatabase(Path(folder) / "r.db") as second:
            self._measured(second).estimate(workloads)
            for record in second.matching(kind="candidate"):
                first = self.database.get(record.key)
                if first is not None and better(first.cost, record.cost):
                    self.database.put(record)
                    self.replaced += 1

    def _measure_transitions(self) -> None:
        backends = list(self.backends.values())
        protocol = candidate_protocol(self.device)
        transition_costs(backends, self.threads, self.database, protocol, self.reporter)

    def _measured(self, database: RecordDatabase) -> CostEstimator:
        estimator: CostEstimator = plugins.load("estimators", "measured", records=database, reporter=self.reporter)
        return estimator

    def _remember(self, workloads: Sequence[Workload], costs: Sequence[Cost]) -> None:
        for workload, cost in zip(workloads, costs, strict=True):
            if cost.is_finite:
                name, description = workload.backend.name, workload.description
                self.points.append(Point(name, (name, skeleton(description)), extents_of(description), cost))
