"""What changes a records database: observations that are added or forgotten, and the aggregates that follow them.

Every function works inside the transaction of the connection that it is given.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, literal, select, union, update

from collage.errors import RecordsError
from collage.records.aggregate import aggregate
from collage.records.record import Record
from collage.records.table import SHARED, key_row, observation_row, observations, records, texts
from collage.records.transactions import insert_new, take_turns

BATCH = 500


@dataclass(frozen=True)
class Selection:
    """Which observations are meant: those of which all that is given is true.

    Attributes
    ----------
    status
        "ok" or "invalid".
    kind
        "candidate", "plan", "transition", "sensitivity" or "calibration".
    backend
        Its name; of plans and transitions those in which it takes part.
    device
        Fingerprint of the machine.
    before, after
        Timestamps: measured earlier than the first, or not earlier than the second.
    """

    status: str | None = None
    kind: str | None = None
    backend: str | None = None
    device: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Forgotten:
    """What a selection takes away.

    Attributes
    ----------
    observations
        How many.
    records
        How many keys have no other observations, and are known no more.
    by_backend, by_status
        The observations, by each property.
    """

    observations: int
    records: int
    by_backend: Mapping[str, int]
    by_status: Mapping[str, int]


def store(connection: Connection, batch: Sequence[Record]) -> int:
    """Add observations; one that is there already is not added again. How many were new."""
    take_turns(connection, (record.key.digest for record in batch))
    added = 0
    for part in _batches(batch):
        keys = {record.key.digest: record.key for record in part}
        added += insert(connection, [observation_row(record) for record in part])
        insert_keys(connection, [key_row(key) for key in keys.values()])
        refresh(connection, list(keys))
    return added


def insert(connection: Connection, rows: Sequence[tuple[dict[str, Any], Mapping[str, bytes]]]) -> int:
    """Add observations with their texts, as `observation_row` makes them, but not their keys; how many were new."""
    contents = {digest: content for _, found in rows for digest, content in found.items()}
    known = _known(connection, texts.c.digest, contents)
    new = sorted(set(contents) - known)  # in one order in all transactions: none waits for one that waits for it
    insert_new(connection, texts, [{"digest": d, "content": zlib.compress(contents[d])} for d in new])
    own = {row["identity"]: row for row, _ in rows}
    known = _known(connection, observations.c.identity, own)
    fresh = [row for identity, row in own.items() if identity not in known]
    if fresh:
        connection.execute(observations.insert(), fresh)
    return len(fresh)


def insert_keys(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Keys that are new; their numbers follow by `refresh`."""
    numbers = {"status": "invalid", "seconds": None, "spread": 0.0, "samples": 0, "reason": ""}
    known = _known(connection, records.c.digest, [row["digest"] for row in rows])
    fresh = [{**row, **numbers} for row in rows if row["digest"] not in known]
    if fresh:
        connection.execute(records.insert(), fresh)


def _known(connection: Connection, column: ColumnElement[str], values: Collection[str]) -> set[str]:
    """Those of the values that the column has."""
    found: set[str] = set()
    for part in _batches(list(values)):
        found.update(connection.scalars(select(column).where(column.in_(part))))
    return found


class _Numbers(NamedTuple):
    """The columns of an observation from which the aggregate is made."""

    digest: str
    kind: str
    status: str
    seconds: float | None
    spread: float
    samples: int
    session: str
    conditions: Mapping[str, float]
    reason: str


def refresh(connection: Connection, digests: Sequence[str]) -> None:
    """Make the aggregates of these keys anew from their observations; keys without any are removed."""
    o, r = observations.c, records.c
    columns = (o.digest, r.kind, o.status, o.seconds, o.spread, o.samples, o.session, o.conditions, o.reason)
    for part in _batches(digests):
        query = select(*columns).join_from(observations, records, o.digest == r.digest)
        rows = connection.execute(query.where(o.digest.in_(part)).order_by(o.digest, o.id))
        numbers = [_Numbers(*row[:7], _mapping(row.conditions), row.reason) for row in rows]
        found = [_aggregated(list(of_key)) for _, of_key in groupby(numbers, key=lambda row: row.digest)]
        if found:
            columns_of: dict[str, Any] = {name: bindparam(name) for name in found[0] if name != "of"}
            connection.execute(update(records).where(r.digest == bindparam("of")).values(columns_of), found)
        gone = set(part) - {row["of"] for row in found}
        if gone:
            connection.execute(delete(records).where(r.digest.in_(list(gone))))


def _mapping(text: str) -> Mapping[str, float]:
    try:
        found: Mapping[str, float] = json.loads(text)
    except ValueError as error:
        raise RecordsError(f"the conditions of an observation are damaged: {error}") from error
    return found


def _aggregated(of_key: Sequence[_Numbers]) -> dict[str, Any]:
    found = aggregate(of_key[0].kind, of_key)
    newest = of_key[found.counted[-1]]
    numbers = {"seconds": found.seconds, "spread": found.spread, "samples": found.samples}
    return {"of": newest.digest, "status": newest.status, "reason": newest.reason, **numbers}


def chosen(connection: Connection, selection: Selection) -> Forgotten:
    """What `forget` would take away."""
    o, r, where = observations.c, records.c, list(_conditions(selection))
    joined = observations.join(records, o.digest == r.digest)

    def count_by(column: ColumnElement[str]) -> dict[str, int]:
        query = select(column, func.count()).select_from(joined).where(*where).group_by(column).order_by(column)
        return {row[0]: row[1] for row in connection.execute(query)}

    hit = select(o.digest, func.count().label("hits")).select_from(joined).where(*where).group_by(o.digest).subquery()
    total = select(func.count()).where(o.digest == hit.c.digest).scalar_subquery()
    whole = connection.scalar(select(func.count()).select_from(hit).where(hit.c.hits == total)) or 0
    by_status = count_by(o.status)
    return Forgotten(sum(by_status.values()), whole, count_by(r.backend), by_status)


def forget(connection: Connection, selection: Selection) -> Forgotten:
    """Remove the observations that are meant, and what only they needed; the others are aggregated anew."""
    take_turns(connection)
    o, r = observations.c, records.c
    found = chosen(connection, selection)
    query = select(o.id, o.digest).join_from(observations, records, o.digest == r.digest).where(*_conditions(selection))
    rows = list(connection.execute(query))
    for part in _batches([row.id for row in rows]):
        connection.execute(delete(observations).where(o.id.in_(part)))
    refresh(connection, list(dict.fromkeys(row.digest for row in rows)))
    needed = union(*(select(o[name]).where(o[name].is_not(None)) for name in SHARED))
    connection.execute(delete(texts).where(texts.c.digest.not_in(needed)))
    return found


def _conditions(selection: Selection) -> Iterator[ColumnElement[bool]]:
    o, r = observations.c, records.c
    equal = {o.status: selection.status, r.kind: selection.kind, r.device: selection.device}
    yield from (column == value for column, value in equal.items() if value is not None)
    if selection.before is not None:
        yield o.timestamp < selection.before
    if selection.after is not None:
        yield o.timestamp >= selection.after
    if selection.backend is not None:
        taking_part = literal("+") + func.replace(r.backend, "->", "+") + "+"
        yield func.replace(taking_part, f"+{selection.backend}+", "") != taking_part


def _batches(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
