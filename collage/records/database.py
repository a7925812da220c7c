"""RecordDatabase: every measurement ever made, looked up by key, in a file or on a server (`collage.records.places`).

What is stored are observations, append-only; what look-ups give is one record per key, made of all its observations
(`collage.records.aggregate`). An observation is on disk before `put` returns, so that a run that is killed loses only
what it was measuring. Where a server is lost on the way, look-ups and puts are tried again until it is back or the time
is up; what was stored before is not stored twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import platformdirs
from sqlalchemy import ColumnElement, Connection, Row, func, select

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records.aggregate import merged
from collage.records.key import RecordKey
from collage.records.places import Location, ServerLost, place_of
from collage.records.record import Record, cost_of
from collage.records.schema import prepare
from collage.records.store import BATCH, Forgotten, Selection, chosen, forget, store
from collage.records.table import key_of_row, named_texts, observation_of, observations, records, text_of, texts

_Found = TypeVar("_Found")
#: Seconds between two trials to reach a server that was lost: the first time, and at most.
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


def default_path() -> Path:
    """`records.db` in the user's cache folder for Collage."""
    return Path(platformdirs.user_cache_dir("collage", appauthor=False)) / "records.db"


@dataclass(frozen=True)
class DatabaseStats:
    """What is in a database: the number of records, in all and by each property, and of their observations; the
    earliest and the latest time of one. A host is a digest (`collage.measure.host`), "" where none is known.
    """

    name: str
    size_bytes: int
    records: int
    observations: int
    by_kind: dict[str, int]
    by_backend: dict[str, int]
    by_device: dict[str, int]
    by_status: dict[str, int]
    by_host: dict[str, int]
    oldest: str | None
    newest: str | None


class RecordDatabase:
    """The records at `path`: a file, which is created, with its folders, when there is none, or the address of a
    PostgreSQL database, `postgresql+psycopg://user@host/database`, whose tables are.

    Safe for several threads and processes at once (but not across a fork: open it again there). A database that cannot
    be written is opened for look-ups; `require_writable` says early whether `put` will work.

        with RecordDatabase() as database:
            database.put(Record.of(key, Cost(1.2e-3)))
            database.get(key).cost

    Attributes
    ----------
    name
        What people read of it: the path, or the address without its password.
    path
        The file; None of a server's database.

    Raises
    ------
    RecordsError
        From every method: the file is damaged, not a records database, of a later schema version, locked by another
        process for longer than `timeout_s` seconds, or cannot be read or written; or a server cannot be reached for so
        long. A file of schema version 1 is migrated when it is opened.
    """

    def __init__(self, path: Location | None = None, timeout_s: float = 30.0) -> None:
        self.place = place_of(default_path() if path is None else path, timeout_s)
        self._engine = self.place.engine()
        try:
            prepare(self.place, self._reading, self.writing)
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def path(self) -> Path | None:
        return self.place.file

    def get(self, key: RecordKey) -> Record | None:
        """The record of this key; None when there is none."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[RecordKey]) -> dict[RecordKey, Record]:
        """The records of those keys that have one; of an equivalent configuration where there is none of the key's."""
        return _first_of_each(keys, lambda digests: {record.key.digest: record for record in self._merged(digests)})

    def costs(self, keys: Iterable[RecordKey]) -> dict[RecordKey, Cost]:
        """The costs of those keys that have a record; much faster than the records themselves."""
        c = records.c
        query = select(c.digest, c.status, c.seconds, c.spread, c.samples, c.reason)

        def under(digests: Sequence[str]) -> dict[str, Cost]:
            def ask(connection: Connection) -> dict[str, Cost]:
                parts = (connection.execute(query.where(c.digest.in_(part))) for part in _batches(digests))
                return {row[0]: cost_of(*row[1:]) for rows in parts for row in rows}

            return self._read(ask)

        return _first_of_each(keys, under)

    def put(self, record: Record) -> None:
        """Add an observation to those of its key; it is on disk when this returns. One that is there stays alone."""
        self.put_many([record])

    def put_many(self, batch: Iterable[Record]) -> int:
        """Add all of the observations or, when that fails, none; how many were not there yet."""
        whole = list(batch)

        def add() -> int:
            with self.writing() as connection:
                return store(connection, whole)

        return self._in_the_end(add)

    def forget(self, selection: Selection, dry_run: bool = False) -> Forgotten:
        """Remove observations; with `dry_run`, only say which. Their keys go by the observations that are left."""
        with self._transaction(writes=not dry_run) as connection:
            return (chosen if dry_run else forget)(connection, selection)

    def __iter__(self) -> Iterator[Record]:
        return self.matching()

    def matching(
        self, kind: str | None = None, backend: str | None = None, device: str | None = None
    ) -> Iterator[Record]:
        """The records of one kind, backend or device fingerprint where one is named, in the order in which their keys
        were first stored.

        What is stored while the iteration goes on is not seen; nothing is locked between two records.
        """
        for part in _batches(self.digests(kind=kind, backend=backend, device=device)):
            found = {record.key.digest: record for record in self._merged(part)}
            yield from (found[digest] for digest in part if digest in found)

    def observations(self) -> Iterator[Record]:
        """What was stored, in that order. As `matching`, it sees nothing that is stored meanwhile."""
        o = observations.c
        numbers = self._read(lambda connection: list(connection.scalars(select(o.id).order_by(o.id))))
        for part in _batches(numbers):
            yield from self._observations(o.id.in_(part))

    def digests(self, **equal: str | None) -> list[str]:
        """The digests of the keys of all records, in the order in which they were first stored; `kind`, `backend`,
        `device` or `status` select.
        """
        query = select(records.c.digest).order_by(records.c.id)
        for column, value in equal.items():
            query = query if value is None else query.where(records.c[column] == value)
        return self._read(lambda connection: list(connection.scalars(query)))

    def __len__(self) -> int:
        return self._read(lambda connection: connection.scalar(select(func.count()).select_from(records)) or 0)

    def stats(self) -> DatabaseStats:
        """Counts of records by kind, backend, device and status, of observations by host, and the earliest and latest
        observation.
        """
        c, o = records.c, observations.c
        with self._transaction(writes=False) as connection:

            def count_by(column: ColumnElement[str]) -> dict[str, int]:
                rows = connection.execute(select(column, func.count()).group_by(column).order_by(column))
                return {row[0]: row[1] for row in rows}

            total, oldest, newest = connection.execute(
                select(func.count(), func.min(o.timestamp), func.max(o.timestamp)).select_from(observations)
            ).one()
            by_kind = count_by(c.kind)
            return DatabaseStats(
                name=self.name,
                size_bytes=self.place.size_bytes(connection),
                records=sum(by_kind.values()),
                observations=total,
                by_kind=by_kind,
                by_backend=count_by(c.backend),
                by_device=count_by(c.device),
                by_status=count_by(c.status),
                by_host=_by_host(connection, count_by(o.device_info)),
                oldest=oldest,
                newest=newest,
            )

    def require_writable(self) -> None:
        """Raise RecordsError when a record could not be stored; ask before a long run."""

        def ask() -> None:
            with self.writing() as connection:
                self.place.require_writable(connection)

        self._in_the_end(ask)

    def close(self) -> None:
        """Release the database. Whatever was put is on disk already."""
        self._engine.dispose()

    def __enter__(self) -> RecordDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RecordDatabase({self.name!r})"

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes: committed to disk at the end, rolled back when anything is raised inside."""
        with self._transaction(writes=True) as connection:
            yield connection

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[Connection]:
        with self._reading() as connection, self.place.transaction(connection, writes):
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self.place.clear_errors(), self._engine.connect() as connection:
            yield connection

    def _read(self, ask: Callable[[Connection], _Found]) -> _Found:
        def once() -> _Found:
            with self._reading() as connection:
                return ask(connection)

        return self._in_the_end(once)

    def _in_the_end(self, work: Callable[[], _Found]) -> _Found:
        """What it returns; it is called again where a server is lost on the way, and may be called too often."""
        end, pause = time.monotonic() + self.place.timeout_s, _PAUSE_S
        while True:
            try:
                return work()
            except ServerLost:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _merged(self, digests: Sequence[str]) -> Iterator[Record]:
        for part in _batches(digests):
            of_key: dict[str, list[Record]] = {}
            for observation in self._observations(observations.c.digest.in_(part)):
                of_key.setdefault(observation.key.digest, []).append(observation)
            yield from map(merged, of_key.values())

    def _observations(self, condition: ColumnElement[bool]) -> Iterator[Record]:
        """The observations of a condition, oldest first; what they have in common is read once, and shared."""
        rows, key_rows, text_rows = self._in_the_end(lambda: self._rows(condition))
        known_keys = {row.digest: self._whole(row, key_of_row) for row in key_rows}
        known_texts = {row.digest: self._whole(row, text_of) for row in text_rows}
        for row in rows:
            yield self._whole(row, lambda row: observation_of(row, known_keys[row.digest], known_texts))

    def _rows(self, condition: ColumnElement[bool]) -> tuple[list[Row[Any]], list[Row[Any]], list[Row[Any]]]:
        """Of observations, of their keys, and of the texts that they name; of one moment."""
        o, r, t = observations.c, records.c, texts.c
        keys = select(*(column for column in r if column is not r.id))
        with self._transaction(writes=False) as connection:
            rows: list[Row[Any]] = list(connection.execute(select(observations).where(condition).order_by(o.id)))
            digests = list(dict.fromkeys(row.digest for row in rows))
            key_rows = [row for part in _batches(digests) for row in connection.execute(keys.where(r.digest.in_(part)))]
            named = named_texts(rows)
            text_rows = [
                row for part in _batches(named) for row in connection.execute(select(texts).where(t.digest.in_(part)))
            ]
        return rows, key_rows, text_rows

    def _whole(self, row: Row[Any], read: Callable[[Row[Any]], _Found]) -> _Found:
        """What is read of a row. Raises RecordsError when it was damaged."""
        try:
            return read(row)
        except (RecordsError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RecordsError(f"{self.name} holds a damaged record, {row.digest[:12]}: {error}") from error


def _by_host(connection: Connection, by_device: Mapping[str, int]) -> dict[str, int]:
    """The counts of devices' texts, by the hosts that these name."""
    found: dict[str, int] = {}
    for part in _batches([digest for digest in by_device if digest is not None]):
        for row in connection.execute(select(texts).where(texts.c.digest.in_(part))):
            with suppress(ValueError, AttributeError):  # damaged: whoever reads it is told
                host = str(text_of(row).get("host", ""))
                found[host] = found.get(host, 0) + by_device[row.digest]
    without = sum(by_device.values()) - sum(found.values())
    if without:
        found[""] = found.get("", 0) + without
    return dict(sorted(found.items()))


def _first_of_each(
    keys: Iterable[RecordKey], under: Callable[[Sequence[str]], Mapping[str, _Found]]
) -> dict[RecordKey, _Found]:
    """For each key what is found under it, or else under the first of its equivalents that has something.

    Equivalents are dozens for each key, so they are looked for only where the key itself has nothing.
    """
    asked = list(dict.fromkeys(keys))
    own = under([key.digest for key in asked])
    found = {key: own[key.digest] for key in asked if key.digest in own}
    left = [key for key in asked if key not in found and key.equivalent]
    others = under(list(dict.fromkeys(each.digest for key in left for each in key.alternatives[1:])))
    for key in left:
        digest = next((each.digest for each in key.alternatives[1:] if each.digest in others), None)
        if digest is not None:
            found[key] = others[digest]
    return {key: found[key] for key in asked if key in found}


def _batches(items: Sequence[_Found]) -> Iterator[Sequence[_Found]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))
