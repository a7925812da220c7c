"""Confirmations on record: what was confirmed once, on this machine and with these versions, is not measured again.

All contestants of a confirmation are recorded under keys that name the whole contest: a latency from another contest
does not count, because only interleaved latencies can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from collage.backends.base import Backend
from collage.compile.build import device_of_backends
from collage.confirm.contest import SEARCHED, UNTOUCHED, Confirmation, Contestant, Ratio, confirm
from collage.measure.plan_runner import Placement, PlanRunner
from collage.measure.protocol import end_to_end
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, plan_key
from collage.runtime.device_info import describe_device
from collage.search import Partitioning


def confirm_once(
    network: str,
    plans: Mapping[str, Placement],
    backends: Sequence[Backend],
    threads: int,
    database: RecordDatabase,
    measure: Callable[[Mapping[str, Placement]], Confirmation],
) -> Confirmation:
    """The confirmation of these plans: from the records where all of it is there, measured and recorded otherwise.

    Parameters
    ----------
    network
        Hash of the network's structure.
    plans
        Name -> placement, `SEARCHED` among them, None for TVM's own build. A contestant that is the searched placement
        itself shares its latency.
    measure
        Takes the different plans and confirms them.
    """
    searched = cover_of(plans[SEARCHED])
    different = {name: p for name, p in plans.items() if name == SEARCHED or cover_of(p) != searched}
    keys = _keys(network, different, backends, threads)
    known = database.get_many(keys.values())
    if all(key in known for key in keys.values()):
        confirmation = _recalled({name: known[key] for name, key in keys.items()})
    else:
        confirmation = measure(different)
        device = describe_device(device_of_backends(backends)).as_dict()
        for c in confirmation.contestants:
            note = _Note(confirmation.shipped, c.ratio, c.partition_seconds, c.launch_seconds)
            description = msgspec.to_builtins(note)
            record = Record.of(keys[c.name], c.latency, label=c.name, description=description, device=device)
            database.put(record)
    twins = tuple(replace(confirmation.of(SEARCHED), name=name) for name in plans if name not in different)
    return replace(confirmation, contestants=confirmation.contestants + twins)


class Contest:
    """Placements of one network that run interleaved, round after round (`collage.confirm.correction.refine`).

    A contestant that fails, or is far slower than the fastest, runs in the first round only: its result is kept.
    """

    def __init__(
        self,
        network: str,
        backends: Mapping[str, Backend],
        threads: int,
        database: RecordDatabase,
        runner: PlanRunner,
    ) -> None:
        self.network = network
        self.backends = backends
        self.threads = threads
        self.database = database
        self.runner = runner
        self._out: dict[str, Contestant] = {}

    def run(self, placements: Mapping[str, Partitioning]) -> Confirmation:
        """The confirmation of these placements, and of TVM's own build of the whole."""
        running: dict[str, Placement] = {name: p.candidates for name, p in placements.items() if name not in self._out}
        if UNTOUCHED not in self._out:
            running[UNTOUCHED] = None
        found = confirm_once(
            self.network,
            running,
            list(self.backends.values()),
            self.threads,
            self.database,
            lambda different: confirm(different, self.runner),
        )
        kept = tuple(self._out.values())
        hopeless = (c for c in found.contestants if c.name != SEARCHED and (c.ratio is None or c.latency.is_invalid))
        self._out.update((c.name, c) for c in hopeless)
        return replace(found, contestants=found.contestants + kept)


def _keys(
    network: str, plans: Mapping[str, Placement], backends: Sequence[Backend], threads: int
) -> dict[str, RecordKey]:
    device = device_of_backends(backends)
    info, protocol = describe_device(device), end_to_end(device)
    covers: dict[str, Any] = {name: cover_of(placement) for name, placement in plans.items()}
    contest = sorted(map(json.dumps, covers.values()))
    return {
        name: plan_key(
            digest_of({"network": network, "cover": cover, "rivals": contest}), backends, info, threads, protocol
        )
        for name, cover in covers.items()
    }


def cover_of(placement: Placement) -> Any:
    """Backend, nodes and labels of every partition, as plain data."""
    if placement is None:
        return UNTOUCHED
    return [[c.backend, list(c.sub_graph.inside), [label for label, _ in c.composites]] for c in placement]


class _Note(msgspec.Struct, frozen=True):
    """What the record of a contestant says besides its latency."""

    shipped: str
    ratio: Ratio | None
    partition_seconds: tuple[float, ...]
    launch_seconds: tuple[float, ...] = ()


def _recalled(known: Mapping[str, Record]) -> Confirmation:
    notes = {name: msgspec.convert(record.description, _Note) for name, record in known.items()}
    contestants = (
        Contestant(name, record.cost, notes[name].ratio, notes[name].partition_seconds, notes[name].launch_seconds)
        for name, record in known.items()
    )
    return Confirmation(notes[SEARCHED].shipped, tuple(contestants))
