"""The schema of a database: made where there is none, brought up to date where it is of version 1, checked.

A migration is one transaction: killed or out of space in the middle, it leaves the database as it was.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Row

from collage.errors import RecordsError
from collage.records.places import Place
from collage.records.record import SCHEMA_VERSION
from collage.records.store import BATCH, insert, insert_keys, refresh
from collage.records.table import KEY_TEXT, PLAIN, metadata, with_identity
from collage.records.transactions import take_turns

_OLD = "records_of_version_1"
Transaction = Callable[[], AbstractContextManager[Connection]]


def prepare(place: Place, reading: Transaction, writing: Transaction) -> None:
    """Make sure that the database has this version's tables.

    Raises
    ------
    RecordsError
        It is of another program or of an unknown version, or is of version 1 and cannot be written.
    """
    with reading() as connection:
        version = place.version(connection)
    if version is None:
        with writing() as connection:
            take_turns(connection)
            version = place.version(connection)
            if version is None:  # another process may have been faster
                metadata.create_all(connection)
                place.stamp(connection, SCHEMA_VERSION)
                version = SCHEMA_VERSION
    if version == 1:
        _bring_up_to_date(place, writing)
    elif version != SCHEMA_VERSION:
        raise RecordsError(
            f"{place.name} has schema version {version}, this Collage reads versions 1 and {SCHEMA_VERSION}: export it "
            "with the Collage that wrote it (`collage records export`), or choose another file with --records"
        )


def _bring_up_to_date(place: Place, writing: Transaction) -> None:
    try:
        with writing() as connection:
            if place.version(connection) == 1:  # another process may have been faster
                _migrate(connection)
                place.stamp(connection, SCHEMA_VERSION)
    except RecordsError as error:
        raise RecordsError(
            f"{place.name} has schema version 1 and cannot be brought to version {SCHEMA_VERSION}; it is as it was: "
            f"{error}"
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
