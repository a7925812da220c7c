"""RecordDatabase: every measurement ever made, one SQLite file, looked up by key.

A record is on disk before `put` returns, so that a run that is killed loses only what it was measuring. SQLite's
rollback journal keeps the file whole through a SIGKILL or a power cut in mid-write, serialises several processes,
and, unlike a write-ahead log, leaves one self-contained file that can be copied, put on a network share or on
read-only media. `PRAGMA application_id` marks the file as ours, `PRAGMA user_version` holds the schema version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import platformdirs
from sqlalchemy import ColumnElement, Connection, create_engine, event, func, select
from sqlalchemy.engine import URL

from collage.cost import Cost
from collage.errors import RecordsError
from collage.records.failures import clear_errors
from collage.records.key import RecordKey
from collage.records.record import SCHEMA_VERSION, Record, cost_of
from collage.records.table import from_row, metadata, records, to_row

#: "CLLG": tells a records database from any other SQLite file.
APPLICATION_ID = 0x434C4C47
_BATCH = 500
_Found = TypeVar("_Found")


def default_path() -> Path:
    """`records.db` in the user's cache folder for Collage."""
    return Path(platformdirs.user_cache_dir("collage", appauthor=False)) / "records.db"


@dataclass(frozen=True)
class DatabaseStats:
    """What is in a database: the number of records, in all and by each property; the time of the oldest and newest."""

    path: Path
    size_bytes: int
    records: int
    by_kind: dict[str, int]
    by_backend: dict[str, int]
    by_device: dict[str, int]
    by_status: dict[str, int]
    oldest: str | None
    newest: str | None


class RecordDatabase:
    """The records in the file at `path`, which is created, with its folders, when there is none.

    Safe for several threads and processes at once (but not across a fork: open it again there). A file that cannot be
    written is opened for look-ups; `require_writable` says early whether `put` will work.

        with RecordDatabase() as database:
            database.put(Record.of(key, Cost(1.2e-3)))
            database.get(key).cost

    Raises
    ------
    RecordsError
        From every method: the file is damaged, not a records database, of another schema version, locked by another
        process for longer than `timeout_s` seconds, or cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, timeout_s: float = 30.0) -> None:
        self.path = default_path() if path is None else Path(path).expanduser()
        self.timeout_s = timeout_s
        self._make_folder()
        self._engine = create_engine(
            URL.create("sqlite", database=str(self.path)),
            connect_args={"timeout": timeout_s},
            isolation_level="AUTOCOMMIT",  # transactions are opened below, with the lock that they need
        )
        event.listen(self._engine, "connect", _make_durable)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def get(self, key: RecordKey) -> Record | None:
        """The record of this key; None when there is none."""
        return self.get_many([key]).get(key)

    def get_many(self, keys: Iterable[RecordKey]) -> dict[RecordKey, Record]:
        """The records of those keys that have one; of an equivalent configuration where there is none of the key's."""
        asked = list(keys)
        found = {record.key.digest: record for record in self._fetch(_digests(asked))}
        return _first_of_each(asked, found)

    def costs(self, keys: Iterable[RecordKey]) -> dict[RecordKey, Cost]:
        """The costs of those keys that have a record; much faster than the records themselves."""
        asked = list(keys)
        c = records.c
        columns = [c.digest, c.status, c.seconds, c.spread, c.samples, c.reason]
        return _first_of_each(
            asked, {row[0]: cost_of(*row[1:]) for row in self._select_by_digest(columns, _digests(asked))}
        )

    def put(self, record: Record) -> None:
        """Store a record, instead of an earlier one of its key; it is on disk when this returns."""
        self.put_many([record])

    def put_many(self, batch: Iterable[Record]) -> None:
        """Store all of the records or, when that fails, none."""
        with self.writing() as connection:
            store(connection, list(batch))

    def __iter__(self) -> Iterator[Record]:
        return self.matching()

    def matching(
        self, kind: str | None = None, backend: str | None = None, device: str | None = None
    ) -> Iterator[Record]:
        """The records, oldest first, of one kind, backend or device fingerprint where one is named.

        What is stored while the iteration goes on is not seen; nothing is locked between two records.
        """
        wanted = {"kind": kind, "backend": backend, "device": device}
        for start in range(0, len(digests := self.digests(**wanted)), _BATCH):
            batch = digests[start : start + _BATCH]
            found = {record.key.digest: record for record in self._fetch(batch)}
            yield from (found[digest] for digest in batch if digest in found)

    def digests(self, **equal: str | None) -> list[str]:
        """The digests of the keys of all records, oldest first; `kind`, `backend`, `device` or `status` select."""
        query = select(records.c.digest).order_by(records.c.timestamp, records.c.digest)
        for column, value in equal.items():
            query = query if value is None else query.where(records.c[column] == value)
        with self._reading() as connection:
            return list(connection.scalars(query))

    def __len__(self) -> int:
        with self._reading() as connection:
            return connection.scalar(select(func.count()).select_from(records)) or 0

    def stats(self) -> DatabaseStats:
        """Counts by kind, backend, device and status, and the age of the oldest and newest record."""
        c = records.c
        with self._reading() as connection:

            def count_by(column: ColumnElement[str]) -> dict[str, int]:
                rows = connection.execute(select(column, func.count()).group_by(column).order_by(column))
                return {row[0]: row[1] for row in rows}

            total, oldest, newest = connection.execute(
                select(func.count(), func.min(c.timestamp), func.max(c.timestamp)).select_from(records)
            ).one()
            return DatabaseStats(
                path=self.path,
                size_bytes=self.path.stat().st_size,
                records=total,
                by_kind=count_by(c.kind),
                by_backend=count_by(c.backend),
                by_device=count_by(c.device),
                by_status=count_by(c.status),
                oldest=oldest,
                newest=newest,
            )

    def require_writable(self) -> None:
        """Raise RecordsError when a record could not be stored; ask before a long run."""
        with self.writing() as connection:
            connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")  # writes a page, changes nothing

    def close(self) -> None:
        """Release the file. Whatever was put is on disk already."""
        self._engine.dispose()

    def __enter__(self) -> RecordDatabase:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RecordDatabase({str(self.path)!r})"

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes: committed to disk at the end, rolled back when anything is raised inside."""
        with self._reading() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # waits for its turn now, never half-way
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                driver: Any = connection.connection.driver_connection
                if driver.in_transaction:  # a full disk has rolled back already
                    driver.rollback()
                raise

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with clear_errors(self.path, self.timeout_s), self._engine.connect() as connection:
            yield connection

    def _fetch(self, digests: Sequence[str]) -> Iterator[Record]:
        for row in self._select_by_digest(list(records.c), digests):
            try:
                record = from_row(row)
            except (RecordsError, ValueError, KeyError, TypeError) as error:
                raise RecordsError(f"{self.path} holds a damaged record, {row.digest[:12]}: {error}") from error
            if record.key.digest != row.digest:
                raise RecordsError(f"{self.path} holds a record whose key was changed, {row.digest[:12]}")
            yield record

    def _select_by_digest(self, columns: Sequence[ColumnElement[Any]], digests: Sequence[str]) -> list[Any]:
        rows: list[Any] = []
        with self._reading() as connection:
            for start in range(0, len(digests), _BATCH):
                chosen = records.c.digest.in_(digests[start : start + _BATCH])
                rows.extend(connection.execute(select(*columns).where(chosen)))
        return rows

    def _make_folder(self) -> None:
        try:
            if self.path.is_dir():
                raise RecordsError(f"{self.path} is a folder: a records database is a file; choose one with --records")
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordsError(
                f"the folder {self.path.parent} for the records cannot be created ({error.strerror}): "
                "choose another file with --records"
            ) from error

    def _open(self) -> None:
        with self._reading() as connection:
            empty = self._is_empty(connection)
        if empty:
            with self.writing() as connection:
                if self._is_empty(connection):  # another process may have been faster
                    metadata.create_all(connection)
                    connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
                    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")
        with self._reading() as connection:
            application = connection.exec_driver_sql("PRAGMA application_id").scalar()
            version = connection.exec_driver_sql("PRAGMA user_version").scalar()
        if application != APPLICATION_ID:
            raise RecordsError(
                f"{self.path} is an SQLite database of another program; it was left as it is: "
                "choose another file with --records"
            )
        if version != SCHEMA_VERSION:
            raise RecordsError(
                f"{self.path} has schema version {version}, this Collage reads version {SCHEMA_VERSION}: export it "
                "with the Collage that wrote it (`collage records export`), or choose another file with --records"
            )

    @staticmethod
    def _is_empty(connection: Connection) -> bool:
        tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
        return tables == 0 and connection.exec_driver_sql("PRAGMA application_id").scalar() == 0


def _digests(keys: Iterable[RecordKey]) -> list[str]:
    return list(dict.fromkeys(each.digest for key in keys for each in key.alternatives()))


def _first_of_each(keys: Iterable[RecordKey], found: Mapping[str, _Found]) -> dict[RecordKey, _Found]:
    """For each key what was found under it, or else under the first of its equivalents that has something."""
    digests = ((key, (each.digest for each in key.alternatives())) for key in keys)
    first = ((key, next((d for d in alternatives if d in found), None)) for key, alternatives in digests)
    return {key: found[digest] for key, digest in first if digest is not None}


def store(connection: Connection, batch: Sequence[Record]) -> None:
    """Insert records, or replace those of the same key, inside the transaction of `connection`."""
    if batch:
        connection.execute(records.insert().prefix_with("OR REPLACE"), [to_row(record) for record in batch])


def _make_durable(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=EXTRA")  # the folder's entry is on disk too before a commit returns
