"""From what a user writes to a place: a path is a file of SQLite, an address a database of PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path

from collage.records.places.place import Place
from collage.records.places.postgres import PostgresDatabase
from collage.records.places.sqlite import SQLiteFile

#: A path, or an address such as `postgresql+psycopg://user@host/database`.
Location = str | os.PathLike[str]


def is_url(location: Location) -> bool:
    """Whether it is the address of a server."""
    return isinstance(location, str) and "://" in location


def place_of(location: Location, timeout_s: float) -> Place:
    """The place of a path or an address. Raises RecordsError where an address is of no database that is known here."""
    if is_url(location):
        return PostgresDatabase(str(location), timeout_s)
    return SQLiteFile(Path(location).expanduser(), timeout_s)
