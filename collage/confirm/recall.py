"""Confirmations on record: what was confirmed once, on this machine and with these versions, is not measured again.

All rivals of a confirmation are recorded under keys that name the whole field: a latency that was taken against
other rivals does not count, because only latencies that were taken by turns can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collage.backends.base import Backend
from collage.compile.build import device_of_backends
from collage.confirm.contest import SEARCHED, UNTOUCHED, Confirmation, Rival, confirm
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
    network: hash of the network's structure.
    plans: name -> placement, `SEARCHED` among them, None for TVM's own build; a rival that is the searched placement
        itself shares its latency.
    measure: takes the different plans and confirms them.
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
        for rival in confirmation.rivals:
            note = {
                "shipped": confirmation.shipped,
                "ratio": rival.ratio,
                "partition_seconds": rival.partition_seconds,
                **({"launch_seconds": rival.launch_seconds} if rival.launch_seconds else {}),
            }
            record = Record.of(keys[rival.name], rival.latency, label=rival.name, description=note, device=device)
            database.put(record)
    twins = tuple(replace(confirmation.of(SEARCHED), name=name) for name in plans if name not in different)
    return replace(confirmation, rivals=confirmation.rivals + twins)


class Field:
    """Placements of one network that run by turns, round after round (`collage.confirm.correction.refine`).

    A rival that fails, or is far slower than the fastest, runs in the first round only: its result is carried on.
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
        self._out: dict[str, Rival] = {}

    def run(self, placements: Mapping[str, Partitioning]) -> Confirmation:
        """The confirmation of these placements, and of TVM's own build of the whole."""
        field: dict[str, Placement] = {name: p.candidates for name, p in placements.items() if name not in self._out}
        if UNTOUCHED not in self._out:
            field[UNTOUCHED] = None
        found = confirm_once(
            self.network,
            field,
            list(self.backends.values()),
            self.threads,
            self.database,
            lambda different: confirm(different, self.runner),
        )
        carried = tuple(self._out.values())
        hopeless = (r for r in found.rivals if r.name != SEARCHED and (r.ratio is None or r.latency.is_invalid))
        self._out.update((r.name, r) for r in hopeless)
        return replace(found, rivals=found.rivals + carried)


def _keys(
    network: str, plans: Mapping[str, Placement], backends: Sequence[Backend], threads: int
) -> dict[str, RecordKey]:
    device = device_of_backends(backends)
    info, protocol = describe_device(device), end_to_end(device)
    covers: dict[str, Any] = {name: cover_of(placement) for name, placement in plans.items()}
    field = sorted(map(json.dumps, covers.values()))
    return {
        name: plan_key(
            digest_of({"network": network, "cover": cover, "rivals": field}), backends, info, threads, protocol
        )
        for name, cover in covers.items()
    }


def cover_of(placement: Placement) -> Any:
    """Backend, nodes and labels of every partition, as plain data."""
    if placement is None:
        return UNTOUCHED
    return [[c.backend, list(c.sub_graph.inside), [label for label, _ in c.composites]] for c in placement]


def _recalled(known: Mapping[str, Record]) -> Confirmation:
    notes = {name: dict(record.description or {}) for name, record in known.items()}
    rivals = tuple(
        Rival(
            name,
            record.cost,
            tuple(notes[name]["ratio"]) if notes[name]["ratio"] else None,
            tuple(notes[name]["partition_seconds"]),
            tuple(notes[name].get("launch_seconds", ())),
        )
        for name, record in known.items()
    )
    return Confirmation(str(notes[SEARCHED]["shipped"]), rivals)
