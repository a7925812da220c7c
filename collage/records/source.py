"""Records from a file, whether it is a database or a benchmark log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from collage.errors import RecordsError
from collage.records.aggregate import by_key
from collage.records.database import RecordDatabase
from collage.records.log import observations_of
from collage.records.record import Record

_SQLITE = b"SQLite format 3\0"


def read_records(path: str | os.PathLike[str], on_torn: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The records of a database or of a benchmark log, one for each key; the first bytes say which of both it is.

    Parameters
    ----------
    path
        Of the file; none is made where there is none.
    on_torn
        Takes a line that says what is missing at the end of a log (`read_log`).

    Raises
    ------
    RecordsError
        The file cannot be read, or is neither.
    """
    if _is_database(Path(path).expanduser()):
        with RecordDatabase(path) as database:
            yield from database
    else:
        yield from by_key(observations_of(Path(path).expanduser(), on_torn))


def read_observations(path: str | os.PathLike[str]) -> Iterator[Record]:
    """All observations that a database or a benchmark log holds; raises as `read_records`."""
    if _is_database(Path(path).expanduser()):
        with RecordDatabase(path) as database:
            yield from database.observations()
    else:
        yield from observations_of(Path(path).expanduser())


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as raw:
            return raw.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise RecordsError(f"{path} cannot be read: {error.strerror or error}") from error
