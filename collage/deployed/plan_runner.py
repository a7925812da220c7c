"""PlanRunner: compiles and exports each placement of a network once, and enters it as a contestant."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import psutil

from collage.annotations.precision import INT8
from collage.arrays import read_array, write_arrays
from collage.backends.base import Backend
from collage.compile.build import CompiledExecutable, build, build_untouched
from collage.compile.rewrite import apply
from collage.cost.cost import Cost
from collage.deployed.entry import Entry
from collage.deployed.messages import COMPILED, Load, Run, Watched
from collage.deployed.protocol import EndToEnd
from collage.deployed.race import Judge, Race, everybody, race
from collage.deployed.rivals import Rival
from collage.deployed.timeline import PARTITION
from collage.errors import CollageError
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.measure.faults import is_scarcity
from collage.measure.patience import Patience
from collage.measure.protocol import Protocol
from collage.measure.rounding import rounding_tolerance
from collage.measure.watching import COPY, Parts
from collage.progress import Reporter

#: Memory that is left alone, as a multiple of what the largest contestant holds.
_RESERVE = 1.5
#: Bytes that a contestant holds before any was loaded: so many, and a multiple of its file's size.
_HELD_BYTES, _HELD = 300 << 20, 4
#: The largest error, relative to the largest value, of a whole network of less precision: beyond it numbers are wrong.
_LESS_PRECISE = 1.0
#: A placement: its candidates in execution order; None is TVM's own build of the whole network.
Placement = Sequence[CandidatePartition] | None
#: What takes part.
Entrant = Placement | Rival
_Key = tuple[CandidatePartition, ...] | Rival | None


class PlanRunner:
    """Compiles, exports and runs placements of one network, and its rivals; files and processes are kept until `close`.

    Parameters
    ----------
    module, graph
        The canonical module and its graph.
    backends
        Those that may appear, by name.
    threads
        Number of threads of the deployment.
    inputs
        One array for each input of the network, in order.
    expected
        Gives the outputs of a correct contestant; called when the first one is entered.
    protocol
        How whole networks are timed.
    device
        The kind of device that all backends run on.
    seed
        Seed of the order of turns.
    """

    def __init__(
        self,
        module: Any,
        graph: DataflowGraph,
        backends: Mapping[str, Backend],
        threads: int,
        inputs: Sequence[np.ndarray],
        expected: Callable[[], Sequence[np.ndarray]],
        reporter: Reporter,
        protocol: EndToEnd,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.module = module
        self.graph = graph
        self.backends = backends
        self.threads = threads
        self.reporter = reporter
        self.protocol = protocol
        self.device = device
        self._folder = tempfile.TemporaryDirectory(prefix="collage-")
        self._inputs = write_arrays(inputs, self.folder, "input")
        self._outputs = expected
        self._entries: dict[_Key, Entry] = {}
        self._rng = random.Random(seed)
        self._patience = Patience(protocol.patience_s if threads > 1 and device == "cpu" else 0.0)

    @property
    def folder(self) -> Path:
        """Where exported models lie until `close`."""
        return Path(self._folder.name)

    @cached_property
    def _expected(self) -> tuple[str, ...]:
        self.reporter.step("computing reference values", 0)
        return write_arrays(self._outputs(), self.folder, "expected")

    @property
    def fastest(self) -> float:
        """Seconds of a call of the fastest contestant so far; infinite before there is one."""
        seen = (e.latency for e in self._entries.values() if e.problem is None and e.latency)
        return min(seen, default=float("inf"))

    def enter(self, entrants: Mapping[str, Entrant]) -> dict[str, Entry]:
        """The entry of each entrant; new ones are compiled, exported, loaded, checked and called once."""
        found: dict[str, Entry] = {}
        # They load while the next one is compiled. Rivals have nothing to compile.
        for name in sorted(entrants, key=lambda name: not isinstance(entrants[name], Rival)):
            key = _key(entrants[name])
            if key not in self._entries:
                self.reporter.step(f"building {name}", 0)
                self._entries[key] = self._make(entrants[name])
                if self._has_room_for(sum(not entry.is_loaded for entry in found.values()) + 1):
                    self._entries[key].begin()
                else:
                    self._entries[key].start()
            found[name] = self._entries[key]
        for name, entry in found.items():
            if not entry.is_loaded:
                self.reporter.step(f"loading {name}", 0)
                self.make_room(list(found.values()))
                entry.ready(self.fastest)
        return {name: found[name] for name in entrants}

    def race(self, entrants: Mapping[str, Entrant], rounds: int, judge: Judge = everybody) -> Race:
        """Rounds in which all that run and are right take turns (`collage.deployed.race.race`)."""
        entries = self.enter(entrants)
        return race(entries, self.protocol, rounds, self._rng, judge, self.reporter, self._patience)

    def watch(self, entrant: Entrant) -> Watched | None:
        """The seconds of each call of a placement inside the whole; None where it is out."""
        return self.enter({"": entrant})[""].watch(self.protocol, self.fastest)

    def outputs(self, placement: Placement, samples: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]] | Cost:
        """The outputs of a placement for each of several samples, or a `Cost` with the reason why there are none."""
        entry = self.enter({"": placement})[""]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            written = [write_arrays(sample, Path(folder), f"sample{number}-") for number, sample in enumerate(samples)]
            found = entry.run(Run(tuple(written), folder), self.fastest)
            if found is None:
                return entry.problem or Cost.unknown("it gave no outputs")
            return [[read_array(path) for path in paths] for paths in found.outputs]

    @property
    def capacity(self) -> int:
        """How many contestants fit into memory, two at least; any number, before one of them was loaded."""
        loaded = [entry.resident for entry in self._entries.values() if entry.is_loaded]
        largest = max((entry.resident for entry in self._entries.values()), default=0)
        room = psutil.virtual_memory().available + sum(loaded)
        return max(2, int(room / largest - _RESERVE)) if largest else sys.maxsize

    def _has_room_for(self, count: int) -> bool:
        """Whether memory has room to load `count` models at a time, each as large as the largest so far."""
        files = [Path(entry.load.path) for entry in self._entries.values()]
        size = max((file.stat().st_size for file in files if file.exists()), default=0)
        held = max(_HELD_BYTES + _HELD * size, *(entry.resident for entry in self._entries.values()))
        return bool(psutil.virtual_memory().available > _RESERVE * count * held)

    def make_room(self, wanted: Collection[Entry]) -> None:
        """End processes until another model fits into memory: those that are not wanted first, the slowest first."""
        held = sorted((e for e in self._entries.values() if e.is_loaded), key=lambda e: (e in wanted, -e.latency))
        largest = max((entry.resident for entry in self._entries.values()), default=0)
        while held and psutil.virtual_memory().available < _RESERVE * largest:
            held.pop(0).park()

    def forget(self, entrants: Sequence[Entrant]) -> None:
        """End the processes of entrants that will not be run again, and delete their files."""
        for entrant in entrants:
            entry = self._entries.pop(_key(entrant), None)
            if entry is not None:
                entry.park()
                if not isinstance(entrant, Rival):
                    Path(entry.load.path).unlink(missing_ok=True)

    def _make(self, entrant: Entrant) -> Entry:
        if isinstance(entrant, Rival):
            return self._entry(entrant.engine, entrant.path)
        path = self.folder / f"plan{len(list(self.folder.glob('plan*')))}.so"
        try:
            self._compile(entrant).export(path)
        except CollageError as error:
            problem = Cost.unknown(str(error)) if is_scarcity(error) else Cost.invalid(str(error))
            return replace(self._entry(COMPILED, path, entrant), problem=problem)
        return self._entry(COMPILED, path, entrant)

    def _compile(self, placement: Placement) -> CompiledExecutable:
        if placement is None:
            return build_untouched(self.module, self.threads, device=self.device)
        partitioned = apply(self.module, self.graph, placement, self.backends)
        return build(partitioned, list(self.backends.values()), self.threads, home=self.device)

    def _entry(self, kind: str, path: Path, placement: Placement = None) -> Entry:
        """A new entry; its tolerance depends on the precision of its partitions. Error budgets are judged elsewhere
        (`collage.accuracy`).
        """
        used = {c.backend for c in placement or () if c.backend != HOST} or set(self.backends)
        precision = [b.tolerance for name, b in self.backends.items() if name in used]
        if any(_is_less_precise(c, self.backends) for c in placement or ()):
            precision.append(_LESS_PRECISE)
        tolerance = max(Protocol().tolerance, rounding_tolerance(self.module["main"]), *precision)
        return Entry(Load(kind, str(path), self._inputs, self.threads, self.device), self._expected, tolerance)

    def close(self) -> None:
        for entry in self._entries.values():
            entry.park()
        self._folder.cleanup()

    def __enter__(self) -> PlanRunner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_less_precise(candidate: CandidatePartition, backends: Mapping[str, Backend]) -> bool:
    if candidate.backend == HOST:
        return False
    return backends[candidate.backend].is_less_precise or any(label == INT8 for label, _ in candidate.composites)


def _key(entrant: Entrant) -> _Key:
    return entrant if entrant is None or isinstance(entrant, Rival) else tuple(entrant)


def partition_seconds(parts: Parts, placement: Sequence[CandidatePartition]) -> tuple[float, ...]:
    """Seconds of each partition inside the whole, host nodes left out, in execution order; () where the calls are not
    those of the placement.

    What else the virtual machine calls is counted with the partition before it (with the first one, if there is none
    before). Copies between devices are charged by themselves (`collage.search.crossings`), and left out.
    """
    count = sum(candidate.backend != HOST for candidate in placement)
    seconds: list[float] = []
    early = 0.0
    for symbol, elapsed in parts:
        if symbol.startswith(PARTITION):
            seconds.append(elapsed)
        elif symbol == COPY:
            continue
        elif seconds:
            seconds[-1] += elapsed
        else:
            early += elapsed
    if not seconds or len(seconds) != count:
        return ()
    return (seconds[0] + early, *seconds[1:])
