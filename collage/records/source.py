"""Records from a file, whether it is a database or a benchmark log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from collage.errors import RecordsError
from collage.records.database import RecordDatabase
from collage.records.log import read_log
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
    path = Path(path).expanduser()
    try:
        with path.open("rb") as raw:
            is_database = raw.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise RecordsError(f"{path} cannot be read: {error.strerror or error}") from error
    if is_database:
        with RecordDatabase(path) as database:
            yield from database
    else:
        yield from read_log(path, on_torn)
