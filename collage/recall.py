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
from collage.confirm import SEARCHED, UNTOUCHED, Confirmation, Rival
from collage.device import describe
from collage.measure.protocol import END_TO_END
from collage.records import Record, RecordDatabase, RecordKey
from collage.records.key import digest_of, plan_key
from collage.search import Partitioning


def confirm_once(
    network: str,
    plans: Mapping[str, Partitioning],
    backends: Sequence[Backend],
    threads: int,
    database: RecordDatabase,
    measure: Callable[[Mapping[str, Partitioning]], Confirmation],
) -> Confirmation:
    """The confirmation of these plans: from the records where all of it is there, measured and recorded otherwise.

    Parameters
    ----------
    network: hash of the network's structure.
    plans: name -> plan, `SEARCHED` among them; a rival that is the searched plan itself shares its latency.
    measure: takes the different plans and confirms them.
    """
    searched = _cover_of(plans[SEARCHED])
    different = {name: p for name, p in plans.items() if name == SEARCHED or _cover_of(p) != searched}
    keys = _keys(network, different, backends, threads)
    known = database.get_many(keys.values())
    if all(key in known for key in keys.values()):
        confirmation = _recalled({name: known[key] for name, key in keys.items()})
    else:
        confirmation = measure(different)
        device = describe().as_dict()
        for rival in confirmation.rivals:
            note = {"shipped": confirmation.shipped, "ratio": rival.ratio}
            record = Record.of(keys[rival.name], rival.latency, label=rival.name, description=note, device=device)
            database.put(record)
    twins = tuple(replace(confirmation.of(SEARCHED), name=name) for name in plans if name not in different)
    return replace(confirmation, rivals=confirmation.rivals + twins)


def _keys(
    network: str, plans: Mapping[str, Partitioning], backends: Sequence[Backend], threads: int
) -> dict[str, RecordKey]:
    covers: dict[str, Any] = {name: _cover_of(plan) for name, plan in plans.items()} | {UNTOUCHED: UNTOUCHED}
    field = sorted(map(json.dumps, covers.values()))
    return {
        name: plan_key(
            digest_of({"network": network, "cover": cover, "rivals": field}), backends, describe(), threads, END_TO_END
        )
        for name, cover in covers.items()
    }


def _cover_of(plan: Partitioning) -> list[Any]:
    """Backend, nodes and labels of every partition, as plain data."""
    return [[c.backend, list(c.sub_graph.inside), [label for label, _ in c.composites]] for c in plan.candidates]


def _recalled(known: Mapping[str, Record]) -> Confirmation:
    notes = {name: dict(record.description or {}) for name, record in known.items()}
    rivals = tuple(
        Rival(name, record.cost, tuple(notes[name]["ratio"]) if notes[name]["ratio"] else None)
        for name, record in known.items()
    )
    return Confirmation(str(notes[SEARCHED]["shipped"]), rivals)
