"""ReplayEstimator: costs as they were recorded, on any machine (Kernel Tuner's simulation runner).

It compares searchers, and repeats results, without hardware. `CachedEstimator` looks a cost up by all that it depends
on, and so finds nothing on another machine, or after an update. This estimator asks for neither device nor versions:

    replay = ReplayEstimator("records.jsonl.gz")
    collage.partition(model, estimator=replay, confirm_end_to_end=False)

A workload matches a record of the same structure, backend name and composites. Observations of one key, in whatever
logs, are aggregated as in a database (`collage.records.aggregate`). If several keys match, of other versions and
configurations, the one that was observed last is used. Numbers that cannot be added are never mixed: logs of several
devices, or of several measuring protocols, are refused until `device` or `protocol` chooses one. Protocols may differ
in how many samples were taken, and in how much was evicted before each, which depends on the network: the one nearest
to the workload's is used. If several numbers of threads were recorded, the workload's own is used; if only one was, it
is used for all.

Only the name of a backend is used, so its library need not be installed. (The backends' rules find candidates on a
Relax module, so TVM has to be installed.)
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import product

from collage.cost.cost import Cost
from collage.cost.estimator import CostEstimator, Workload
from collage.cost.transition import Pair, Transition, transitions_of
from collage.errors import RecordsError
from collage.measure.protocol import whatever_evicted
from collage.measure.workers import Workers
from collage.progress import Reporter
from collage.records import Record, RecordDatabase, by_key, read_observations
from collage.records.database import default_path
from collage.records.key import Composites, Device, MeasuringProtocol, protocol_json
from collage.records.places import place_of

Source = RecordDatabase | str | os.PathLike[str]
_Costs = dict[int, Cost]  # by number of threads
_Evicted = dict[int, _Costs]  # by bytes that were evicted before a sample


class ReplayEstimator(CostEstimator):
    """Serves recorded costs. What the logs hold when they are first needed is read once, and kept.

    Parameters
    ----------
    records
        A benchmark log (JSON lines, plain or gzip) or a records database, as a path, an open database, or a sequence of
        these; None is the default database in the user's cache folder.
    fallback
        Asked, in one batch, for the workloads that no record matches; None makes them Unknown, with the reason.
    device
        The machine (or its fingerprint) whose records are served; None when the logs are of one device.
    protocol
        How the costs to serve were measured; None when the logs' candidates were all measured in one way.
    """

    def __init__(
        self,
        records: Source | Sequence[Source] | None = None,
        fallback: CostEstimator | None = None,
        device: Device | None = None,
        protocol: MeasuringProtocol | None = None,
    ) -> None:
        self.records = records
        self.fallback = fallback
        self.device = device
        self.protocol = protocol

    def bind(self, records: RecordDatabase, reporter: Reporter) -> CostEstimator:
        if self.records is not None and self.fallback is None:
            return self  # and with it what it has read
        fallback = self.fallback.bind(records, reporter) if self.fallback is not None else None
        return self.with_params(records=records if self.records is None else self.records, fallback=fallback)

    def on(self, workers: Workers) -> CostEstimator:
        return self if self.fallback is None else self.with_params(fallback=self.fallback.on(workers))

    def session(self) -> AbstractContextManager[None]:
        return nullcontext() if self.fallback is None else self.fallback.session()

    def estimate(self, workloads: Sequence[Workload]) -> list[Cost]:
        """One cost per workload: the recorded one, the fallback's, or Unknown.

        Raises
        ------
        RecordsError
            A log is missing, damaged or empty, or holds several devices or protocols and none was chosen.
        """
        if not workloads:
            return []
        found = {workload: self.recorded_.cost(workload) for workload in workloads}
        missing = [workload for workload, cost in found.items() if cost.is_unknown]
        if missing and self.fallback is not None:
            found.update(zip(missing, self.fallback.estimate(missing), strict=True))
        return [found[workload] for workload in workloads]

    def transitions(self, backends: Iterable[str], threads: int) -> dict[Pair, Transition]:
        """What was recorded of each ordered pair of the named backends; a pair without records is absent."""
        return self.recorded_.transitions(backends, threads)

    @cached_property
    def recorded_(self) -> RecordedCosts:
        observed = (r for source in self._sources() for r in _observations_of(source) if r.key.kind != "plan")
        records = list(by_key(observed))
        if not records:
            raise RecordsError(f"nothing to replay: {self._named()} has no measured candidates")
        records = _chosen(records, "device", [r.key.device for r in records], self._fingerprint(), "device=")
        costs = [r for r in records if r.key.kind == "candidate"]
        wanted = None if self.protocol is None else protocol_json(self.protocol)
        how = [whatever_evicted(r.key.protocol) if wanted is None else r.key.protocol for r in costs]
        costs = _chosen(costs, "measuring protocol", how, wanted, "protocol=")
        return RecordedCosts([*costs, *(r for r in records if r.key.kind == "transition")])

    def _sources(self) -> list[Source]:
        if self.records is None:
            return [default_path()]
        if isinstance(self.records, (RecordDatabase, str, os.PathLike)):
            return [self.records]
        return list(self.records)

    def _named(self) -> str:
        named = (s if isinstance(s, RecordDatabase) else place_of(s, 0.0) for s in self._sources())
        return ", ".join(each.name for each in named) or "no log"

    def _fingerprint(self) -> str | None:
        return self.device if self.device is None or isinstance(self.device, str) else self.device.fingerprint


class RecordedCosts:
    """The cost of everything recorded, by what it is matched by; of the key that was observed last."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.costs: dict[tuple[str, str, Composites], _Evicted] = {}
        self.between: dict[tuple[str, int], _Costs] = {}
        self.threads: set[int] = set()
        self.structures: set[tuple[str, str]] = set()
        # Of two of one time the larger digest stays: the order of the logs decides nothing.
        for record in sorted(records, key=lambda r: (r.timestamp, r.key.digest)):
            key = record.key
            self.threads.add(key.threads)
            if key.kind == "transition":
                # Records of earlier versions hold differences of one size, and do not say of which.
                size = (record.description or {}).get("bytes")
                if size is not None:
                    self.between.setdefault((key.backend, size), {})[key.threads] = record.cost
            else:
                evicted = self.costs.setdefault((key.structure, key.backend, key.composites), {})
                # The one that was observed last is the last one in it.
                ours = evicted.pop(size := _evicted(record), {})
                evicted[size] = {**ours, key.threads: record.cost}
                self.structures.add((key.structure, key.backend))

    def cost(self, workload: Workload) -> Cost:
        composites = tuple((label, tuple(positions)) for label, positions in workload.composites)
        known = self.costs.get((workload.structure, workload.backend.name, composites))
        if known is None:
            other = (workload.structure, workload.backend.name) in self.structures
            what = "these library patterns of it" if other else "this structure"
            return Cost.unknown(f"no record of {what} on {workload.backend.name}")
        threads = self._threads(workload.threads)
        sizes = [size for size, costs in known.items() if threads in costs]
        if not sizes:
            recorded = ", ".join(map(str, sorted({count for costs in known.values() for count in costs})))
            return Cost.unknown(f"recorded with {recorded} threads, not with {workload.threads}")
        wanted = workload.working_set or max(sizes)
        nearest = min(reversed(sizes), key=lambda size: abs(math.log(max(1, size) / max(1, wanted))))
        return known[nearest][threads]

    def transitions(self, backends: Iterable[str], threads: int) -> dict[Pair, Transition]:
        asked, names = self._threads(threads), list(backends)
        pairs = {f"{a}->{b}": (a, b) for a, b in product(names, repeat=2)}
        return transitions_of(
            {
                (*pairs[pair], size): costs[asked]
                for (pair, size), costs in self.between.items()
                if pair in pairs and asked in costs
            }
        )

    def _threads(self, asked: int) -> int:
        return next(iter(self.threads)) if len(self.threads) == 1 else asked


def _chosen(records: list[Record], what: str, values: Sequence[str], wanted: str | None, switch: str) -> list[Record]:
    """The records of the wanted value; of the only one, when none is wanted."""
    distinct = sorted(set(values))
    if wanted is None and len(distinct) > 1:
        raise RecordsError(
            f"the records to replay are of {len(distinct)} {what}s, which cannot be mixed: choose one with {switch} "
            f"({'; '.join(distinct)})"
        )
    if wanted is not None and wanted not in distinct:
        raise RecordsError(f"no record to replay is of {what} {wanted}; there are: {'; '.join(distinct) or 'none'}")
    return [r for r, value in zip(records, values, strict=True) if wanted is None or value == wanted]


def _evicted(record: Record) -> int:
    return int(json.loads(record.key.protocol).get("evict_bytes", 0))


def _observations_of(source: Source) -> Iterable[Record]:
    return source.observations() if isinstance(source, RecordDatabase) else read_observations(source)
