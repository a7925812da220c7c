"""Benchmark logs: records as JSON lines, to move between machines, to keep in a repository, and to learn from.

The first line is a header, each further line one record (docs/RECORDS.md). Files whose name ends in `.gz` are
compressed; logs can be concatenated. A log that was cut off at its end (a killed copy, a full disk) gives all its
whole lines and says that the end is missing; any other damage is an error that names the line, and then nothing at
all is imported.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

from sqlalchemy import Connection, select

from collage.errors import RecordsError
from collage.files import replacing
from collage.records.database import RecordDatabase, store
from collage.records.key import canonical_json
from collage.records.record import SCHEMA_VERSION, Record, now, software_versions
from collage.records.table import records

FORMAT = "collage-records"
_BATCH = 500
LogFile = str | os.PathLike[str] | TextIO


@dataclass(frozen=True)
class ImportCounts:
    """What an import did.

    Attributes
    ----------
    read
        Whole records in the log; the sum of the next three.
    added
        Records whose key was new.
    updated
        Records newer than the database's of the same key, which they replaced.
    unchanged
        Records that the database had, or had a newer one of.
    torn
        "" for a whole log; else one line that says what is missing at its end.
    """

    read: int
    added: int
    updated: int
    unchanged: int
    torn: str = ""


def export_log(database: RecordDatabase, target: LogFile) -> int:
    """Write all records, oldest first, to a path or a text stream; returns how many.

    A file is replaced only once the new one is complete on disk.

    Raises
    ------
    RecordsError
        The database cannot be read, or the log cannot be written.
    """
    if not isinstance(target, (str, os.PathLike)):
        return _write(database, target)
    path = Path(target).expanduser()
    try:
        opened = _compressed if path.suffix == ".gz" else _plain
        with replacing(path) as partial, partial.open("wb") as raw, opened(raw) as stream:
            return _write(database, stream)
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror or error}): choose another file") from error


def import_log(database: RecordDatabase, source: LogFile) -> ImportCounts:
    """Store the records of a log, from a path or a text stream, plain or gzip; of two of one key the newer one stays.

    Importing a log again changes nothing. All or, when anything is raised, none of it is imported.

    Raises
    ------
    RecordsError
        The file cannot be read, is not a log, has another schema version, or has a malformed line that is not its torn
        end (the message gives the line's number); or the database cannot be written.
    """
    reader, counts = _Reader(source), _Counts()
    with database.writing() as connection:
        batch: list[Record] = []
        for record in reader.records():
            batch.append(record)
            if len(batch) == _BATCH:
                counts.merge(connection, batch)
                batch = []
        counts.merge(connection, batch)
    return ImportCounts(
        counts.read, counts.added, counts.updated, counts.read - counts.added - counts.updated, reader.torn
    )


def read_log(source: LogFile, on_torn: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The records of a log, without a database: for training. A torn end is left out; what is missing is then told to
    `on_torn` in one line. Raises as `import_log`.
    """
    reader = _Reader(source)
    yield from reader.records()
    if reader.torn and on_torn is not None:
        on_torn(reader.torn)


def _write(database: RecordDatabase, stream: TextIO) -> int:
    count = len(database)
    header = {
        "format": FORMAT,
        "version": SCHEMA_VERSION,
        "records": count,
        "exported": now(),
        "collage": software_versions()["collage"],
    }
    stream.write(canonical_json(header) + "\n")
    written = 0
    for record in database:
        stream.write(record.to_json() + "\n")
        written += 1
    return written


@dataclass
class _Counts:
    read: int = 0
    added: int = 0
    updated: int = 0

    def merge(self, connection: Connection, batch: list[Record]) -> None:
        """Store those records of the batch that are new or newer than what is there."""
        newest: dict[str, Record] = {}
        for record in batch:
            known = newest.get(record.key.digest)
            if known is None or record.timestamp > known.timestamp:
                newest[record.key.digest] = record
        query = select(records.c.digest, records.c.timestamp).where(records.c.digest.in_(list(newest)))
        present = {row[0]: row[1] for row in connection.execute(query)}
        added = [record for digest, record in newest.items() if digest not in present]
        updated = [r for digest, r in newest.items() if digest in present and r.timestamp > present[digest]]
        store(connection, [*added, *updated])
        self.read += len(batch)
        self.added += len(added)
        self.updated += len(updated)


@dataclass
class _Reader:
    """Reads a log line by line; afterwards `torn` says what is missing at its end."""

    source: LogFile
    torn: str = field(default="", init=False)

    def records(self) -> Iterator[Record]:
        name = str(self.source) if isinstance(self.source, (str, os.PathLike)) else "the log"
        promised, found, number = 0, 0, 0
        for number, line, complete in self._lines(name):
            if not line.strip():
                continue
            try:
                values = json.loads(line, parse_constant=_refuse_constant)
                if not isinstance(values, dict):
                    raise ValueError("not a JSON object")
            except ValueError as error:  # JSONDecodeError is one
                if not complete and number > 1:
                    self.torn = f"{name} breaks off in line {number}: all whole lines before it were read"
                    return
                what = "it is not a benchmark log of Collage" if number == 1 else f"line {number} is malformed"
                raise RecordsError(f"{name}: {what} ({error})") from error
            if number == 1 or "format" in values:
                promised += _check_header(values, f"{name}, line {number}")
                continue
            try:
                record = Record.from_dict(values)
            except RecordsError as error:
                raise RecordsError(f"{name}, line {number}: {error}") from error
            found += 1
            yield record
        if number == 0:
            raise RecordsError(f"{name} is empty: it is not a benchmark log of Collage")
        if not self.torn and found < promised:
            self.torn = f"{name} has {found} of the {promised} records that its header promises: its end is missing"

    def _lines(self, name: str) -> Iterator[tuple[int, str, bool]]:
        """(number from 1, line, whether it ends in a line feed); a compressed file that breaks off just ends."""
        number = 0
        try:
            with _opened(self.source) as stream:
                while True:
                    try:
                        line = stream.readline()
                    except EOFError:
                        self.torn = f"{name} breaks off after line {number}: all whole lines before it were read"
                        return
                    if not line:
                        return
                    number += 1
                    yield number, line, line.endswith("\n")
        except UnicodeDecodeError as error:
            raise RecordsError(
                f"{name} is not text after line {number} ({error.reason}): not a benchmark log"
            ) from error
        except zlib.error as error:
            raise RecordsError(f"{name} is damaged after line {number}: {error}") from error
        except OSError as error:  # BadGzipFile is one
            raise RecordsError(f"{name} cannot be read: {error.strerror or error}") from error


@contextmanager
def _opened(source: LogFile) -> Iterator[TextIO]:
    """A text stream of a log, decompressed when its first bytes say so, whatever its name is."""
    if not isinstance(source, (str, os.PathLike)):
        yield source
        return
    with Path(source).expanduser().open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        binary: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        with io.TextIOWrapper(binary, encoding="utf-8", newline="\n") as stream:
            yield stream


@contextmanager
def _plain(raw: IO[bytes]) -> Iterator[TextIO]:
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    yield stream
    stream.detach()  # flushes, and leaves the file open


@contextmanager
def _compressed(raw: IO[bytes]) -> Iterator[TextIO]:
    with (
        gzip.GzipFile(
            filename="", mode="wb", fileobj=raw, mtime=0
        ) as packed,  # no name or time: same records, same file
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        yield stream


def _check_header(values: dict[str, Any], where: str) -> int:
    """How many records the header promises; 0 when it does not say."""
    if values.get("format") != FORMAT:
        raise RecordsError(f"{where}: the header of a benchmark log was expected ({FORMAT})")
    version = values.get("version")
    if version != SCHEMA_VERSION:
        raise RecordsError(
            f"{where}: the log has schema version {version}, this Collage reads version {SCHEMA_VERSION}: "
            "import it with the Collage that wrote it"
        )
    count = values.get("records", 0)
    if type(count) is not int:
        raise RecordsError(f"{where}: the header's number of records is {count!r}")
    return count


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a record can hold")
