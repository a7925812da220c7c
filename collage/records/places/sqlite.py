"""SQLiteFile: records in one file.

SQLite's rollback journal keeps the file whole through a SIGKILL or a power cut in mid-write, serialises several
processes, and, unlike a write-ahead log, leaves one self-contained file that can be copied, put on a network share or
on read-only media. `PRAGMA application_id` marks the file as ours, `PRAGMA user_version` holds the schema version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from collage.errors import RecordsError
from collage.records.places.place import Place
from collage.records.places.sqlite_errors import clear_errors
from collage.records.record import SCHEMA_VERSION

#: "CLLG": tells a records database from any other SQLite file.
APPLICATION_ID = 0x434C4C47


class SQLiteFile(Place):
    """The file at `path`, which is made, with its folders, when there is none."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self.path = self.file = path
        self.name = str(path)
        self.timeout_s = timeout_s

    def engine(self) -> Engine:
        self._make_folder()
        engine = create_engine(
            URL.create("sqlite", database=str(self.path)),
            connect_args={"timeout": self.timeout_s},
            isolation_level="AUTOCOMMIT",  # transactions are opened below, with the lock that they need
        )
        event.listen(engine, "connect", _make_durable)
        return engine

    @contextmanager
    def transaction(self, connection: Connection, writes: bool) -> Iterator[None]:
        # One that writes waits for its turn now, never half-way.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            yield
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            driver: Any = connection.connection.driver_connection
            if driver.in_transaction:  # a full disk has rolled back already
                driver.rollback()
            raise

    def version(self, connection: Connection) -> int | None:
        # An empty file is not locked by those who read it: it may get its tables, and with them its stamp, in between.
        empty = not connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
        application = _pragma(connection, "application_id")
        if application == 0 and empty:
            return None
        if application != APPLICATION_ID:
            raise RecordsError(
                f"{self.name} is an SQLite database of another program; it was left as it is: choose another file "
                "with --records"
            )
        return _pragma(connection, "user_version")

    def stamp(self, connection: Connection, version: int) -> None:
        connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version={version}")

    def require_writable(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")  # a page is written, and nothing changes

    def size_bytes(self, connection: Connection) -> int:
        return self.path.stat().st_size

    def clear_errors(self) -> AbstractContextManager[None]:
        return clear_errors(self.path, self.timeout_s)

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


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)


def _make_durable(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=EXTRA")  # the folder's entry is on disk too before a commit returns
