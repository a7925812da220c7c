"""The schema of a database file: made where there is none, brought up to date where it is of version 1, checked.

`PRAGMA application_id` marks the file as ours, `PRAGMA user_version` holds the schema version. A migration is one
transaction: killed or out of space in the middle, it leaves the file as it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row

from collage.errors import RecordsError
from collage.records.record import SCHEMA_VERSION
from collage.records.store import BATCH, insert, insert_keys, refresh
from collage.records.table import KEY_TEXT, PLAIN, metadata, with_identity

#: "CLLG": tells a records database from any other SQLite file.
APPLICATION_ID = 0x434C4C47
_OLD = "records_of_version_1"
Transaction = Callable[[], AbstractContextManager[Connection]]


def prepare(path: Path, reading: Transaction, writing: Transaction) -> None:
    """Make sure that the file has this version's tables.

    Raises
    ------
    RecordsError
        It is of another program or of an unknown version, or is of version 1 and cannot be written.
    """
    with reading() as connection:
        empty = _is_empty(connection)
    if empty:
        with writing() as connection:
            if _is_empty(connection):  # another process may have been faster
                metadata.create_all(connection)
                connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
                stamp(connection)
    with reading() as connection:
        application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if application != APPLICATION_ID:
        raise RecordsError(
            f"{path} is an SQLite database of another program; it was left as it is: choose another file with --records"
        )
    if version == 1:
        _bring_up_to_date(path, writing)
    elif version != SCHEMA_VERSION:
        raise RecordsError(
            f"{path} has schema version {version}, this Collage reads versions 1 and {SCHEMA_VERSION}: export it "
            "with the Collage that wrote it (`collage records export`), or choose another file with --records"
        )


def stamp(connection: Connection) -> None:
    """Write the schema version; where it is this one, a page is written, and nothing changes."""
    connection.exec_driver_sql(f"PRAGMA user_version={SCHEMA_VERSION}")


def _bring_up_to_date(path: Path, writing: Transaction) -> None:
    try:
        with writing() as connection:
            if _pragma(connection, "user_version") == 1:  # another process may have been faster
                _migrate(connection)
                stamp(connection)
    except RecordsError as error:
        raise RecordsError(
            f"{path} has schema version 1 and cannot be brought to version {SCHEMA_VERSION}; it is as it was: {error}"
        ) from error


def _migrate(connection: Connection) -> None:
    """Every record of version 1 becomes the one observation of its key.

    Rows are carried over as they are, not read and written: a damaged one stays one, and says so when it is asked for.
    """
    connection.exec_driver_sql(f"ALTER TABLE records RENAME TO {_OLD}")
    metadata.create_all(connection)
    rows = connection.exec_driver_sql(f"SELECT * FROM {_OLD} ORDER BY timestamp, digest")
    for part in rows.partitions(BATCH):
        insert(connection, [_observation(row) for row in part])
        insert_keys(connection, [_key(row) for row in part])
        refresh(connection, [row.digest for row in part])
    connection.exec_driver_sql(f"DROP TABLE {_OLD}")


def _key(row: Row[Any]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("digest", *KEY_TEXT, "composites", "protocol")}


def _observation(row: Row[Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    own = {name: getattr(row, name) for name in PLAIN if name != "session"}
    contents = {
        "operators": row.operators,
        "description": None if row.description is None else _unpacked(row.description),
        "device_info": row.device_info,
        "versions": row.versions,
    }
    return with_identity(row.digest, {**own, "session": "", "conditions": "{}", "timings": row.timings}, contents)


def _unpacked(description: bytes) -> str:
    try:
        return zlib.decompress(description).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        return f"damaged before it was migrated: {error}"


def _is_empty(connection: Connection) -> bool:
    tables = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
    return tables == 0 and _pragma(connection, "application_id") == 0


def _pragma(connection: Connection, name: str) -> Any:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()
