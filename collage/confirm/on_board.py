"""Confirmation on a board: the searched placement and the baselines run there as wholes, and the best one ships.

They are timed in one session, taking turns call by call, and judged by the rule of every contest. Costs are not
corrected, because a board cannot time a partition inside the whole. Rivals do not take part, because a board has TVM's
runtime alone.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from collage.arrays import write_arrays
from collage.backends.base import Backend
from collage.compile.build import build, build_untouched
from collage.compile.rewrite import apply
from collage.confirm.confirmation import SEARCHED, UNTOUCHED, Confirmation, Contestant, choose, contestant
from collage.confirm.contest import cover_of
from collage.confirm.decision import Decision, settle
from collage.deployed.plan_runner import Placement
from collage.deployed.race import Race
from collage.errors import CollageError
from collage.graph.candidates import HOST
from collage.graph.dataflow_graph import DataflowGraph
from collage.measure.artifact import Artifact
from collage.measure.boards import Board
from collage.measure.faults import Failure
from collage.measure.job import Job
from collage.measure.protocol import BoardProtocol
from collage.measure.reference import ReferenceRun
from collage.measure.rounding import rounding_tolerance
from collage.measure.runner import Measurement
from collage.progress import Reporter
from collage.records.key import digest_of
from collage.search.phase import Searched, single_backend_baselines

#: Every plan has as many samples as any other, but for those that are hopeless, so that their rounds can be compared.
_ROUNDS = 15


@dataclass(frozen=True)
class BoardPlans:
    """Whole placements of one network on a board.

    Attributes
    ----------
    module, graph
        The canonical module and its graph.
    backends
        Those that may appear, made for the board, by name.
    threads
        Number of threads of the deployment.
    reference
        Has what the network is run on, and what a correct plan gives.
    board
        Who times.
    """

    module: Any
    graph: DataflowGraph
    backends: Mapping[str, Backend]
    threads: int
    reference: ReferenceRun
    board: Board
    reporter: Reporter

    def measure(self, placements: Mapping[str, Placement]) -> dict[str, Measurement]:
        """What each takes as a whole, or why that is not known."""
        self.reporter.stage("confirming on the board", None)
        found: dict[str, Measurement] = {}
        ready: dict[str, Artifact] = {}
        with tempfile.TemporaryDirectory(prefix="collage-") as name:
            folder = Path(name)
            for number, (label, placement) in enumerate(placements.items()):
                self.reporter.step(f"building {label}", 0)
                path = folder / f"plan{number}{self.board.suffix}"
                try:
                    self._export(placement, path)
                except CollageError as error:
                    found[label] = Measurement.failed(Failure.of(error, "does not compile"))
                else:
                    ready[label] = Artifact(str(path), tolerance=rounding_tolerance(self.module["main"]))
            if ready:
                job = Job(
                    artifacts=tuple(ready.values()),
                    inputs=write_arrays(tuple(self.reference.inputs), folder, "input"),
                    expected=write_arrays(tuple(self.reference.outputs), folder, "expected"),
                    protocol=BoardProtocol("hot", min_samples=_ROUNDS, max_samples=_ROUNDS, relative=0.0),
                    threads=self.threads,
                )
                ((_, measured),) = self.board.measure([job], self.reporter)
                found |= dict(zip(ready, measured, strict=True))
        return {label: found[label] for label in placements}

    def _export(self, placement: Placement, path: Path) -> None:
        backends = list(self.backends.values())
        if placement is None:
            build_untouched(self.module, self.threads, backends=backends).export(path)
        else:
            build(apply(self.module, self.graph, placement, self.backends), backends, self.threads).export(path)


def decide_on_board(searched: Searched, backends: Mapping[str, Backend], plans: BoardPlans | None) -> Decision:
    """What ships, and why: by costs alone where there are no plans to be run, or where none can be."""
    found = searched.partitioning
    baselines = single_backend_baselines(searched.problem, backends)
    settled = settle(searched, baselines)
    if plans is None:
        return settled
    placements: dict[str, Placement] = {SEARCHED: found.candidates}
    placements |= {name: baseline.candidates for name, baseline in baselines.items()}
    placements[UNTOUCHED] = None
    distinct = {digest_of(cover_of(p)): name for name, p in reversed(placements.items())}  # the first of equal ones
    measured = plans.measure({name: p for name, p in placements.items() if name in distinct.values()})
    able = {name: m for name, m in measured.items() if m.valid}
    if not able:
        reasons = "; ".join(f"{name}: {m.reason}" for name, m in measured.items())
        return replace(settled, notes=(*settled.notes, f"not confirmed: no plan was timed on the board: {reasons}"))
    race = Race({name: [(seconds,) for seconds in m.samples] for name, m in able.items()})
    shipped = choose(race, {name: _partitions(placements[name]) for name in able})
    own = {
        name: contestant(name, race, shipped) if name in able else Contestant(name, m.cost)
        for name, m in measured.items()
    }
    contestants = tuple(
        msgspec.structs.replace(own[distinct[digest_of(cover_of(p))]], name=name) for name, p in placements.items()
    )
    return replace(
        settled,
        choice=shipped,
        shipped=found if shipped == SEARCHED else baselines.get(shipped),
        notes=found.notes,
        confirmation=Confirmation(shipped, contestants),
    )


def _partitions(placement: Placement) -> float:
    if placement is None:
        return math.inf
    return sum(candidate.backend != HOST for candidate in placement)
