"""Records from wherever they are: a file, which is a database or a benchmark log, or a database of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from collage.errors import RecordsError
from collage.records.aggregate import by_key
from collage.records.database import RecordDatabase
from collage.records.log import ImportCounts, import_log, observations_of
from collage.records.places import Location, is_url
from collage.records.record import Record
from collage.records.store import BATCH, store
from collage.records.transactions import take_turns

_SQLITE = b"SQLite format 3\0"


def read_records(path: Location, on_torn: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The records of a database or of a benchmark log, one for each key; the first bytes say which of both it is.

    Parameters
    ----------
    path
        Of the file, of which none is made where there is none; or the address of a database.
    on_torn
        Takes a line that says what is missing at the end of a log (`read_log`).

    Raises
    ------
    RecordsError
        The file cannot be read, or is neither.
    """
    if _is_database(path):
        with RecordDatabase(path) as database:
            yield from database
    else:
        yield from by_key(observations_of(Path(path).expanduser(), on_torn))


def read_observations(path: Location) -> Iterator[Record]:
    """All observations that a database or a benchmark log holds; raises as `read_records`."""
    if _is_database(path):
        with RecordDatabase(path) as database:
            yield from database.observations()
    else:
        yield from observations_of(Path(path).expanduser())


def _is_database(location: Location) -> bool:
    if is_url(location):
        return True
    path = Path(location).expanduser()
    try:
        with path.open("rb") as raw:
            return raw.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise RecordsError(f"{path} cannot be read: {error.strerror or error}") from error


def merge(database: RecordDatabase, source: Location) -> ImportCounts:
    """Add the observations of another database, or of a benchmark log, to those of a database. All or, when anything is
    raised, none of them; those that are there already stay once.

    Raises
    ------
    RecordsError
        As `read_records`; or the database cannot be written.
    """
    if not _is_database(source):
        return import_log(database, Path(source).expanduser())
    read = added = 0
    left = read_observations(source)
    with database.writing() as connection:
        take_turns(connection)
        while batch := list(islice(left, BATCH)):
            read += len(batch)
            added += store(connection, batch)
    return ImportCounts(read, added, read - added)
