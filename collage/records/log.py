"""Benchmark logs: observations as JSON lines, to move between machines, to keep in a repository, and to learn from.

The first line is a header, each further line one observation (docs/RECORDS.md). Files whose name ends in `.gz` are
compressed; logs can be concatenated. A log that was cut off at its end (a killed copy, a full disk) gives all its
whole lines and says that the end is missing; any other damage is an error that names the line, and then nothing at
all is imported. Logs come from anywhere, so their sizes, depths and dates have limits.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from collage.errors import RecordsError
from collage.files import replacing
from collage.records import parquet
from collage.records.aggregate import by_key
from collage.records.database import RecordDatabase
from collage.records.key import canonical_json, check_json
from collage.records.record import SCHEMA_VERSION, SINCE_2, Record, now, software_versions
from collage.records.store import BATCH, store
from collage.records.transactions import take_turns

FORMAT = "collage-records"
#: Characters of a line; a record of a network of thousands of operators has a hundredth of it.
MAX_LINE = 1 << 26
#: Bytes of a compressed log when it is unpacked, and how many for each compressed one where that allows more. Logs
#: shrink to a twentieth; gzip can promise a thousand times its size of nothing.
MAX_UNPACKED, MAX_RATIO = 1 << 28, 100
#: This version of Collage is of then: a clock that says less was set back, and is no reason to doubt a log.
_WRITTEN = "2026-11-24T00:00:00.000000+00:00"
LogFile = str | os.PathLike[str] | TextIO


@dataclass(frozen=True)
class ImportCounts:
    """What an import did.

    Attributes
    ----------
    read
        Whole observations in the log; the sum of the next two.
    added
        Observations that were new.
    known
        Observations that the database had.
    torn
        "" for a whole log; else one line that says what is missing at its end.
    """

    read: int
    added: int
    known: int
    torn: str = ""


def export_log(database: RecordDatabase, target: LogFile) -> int:
    """Write all observations, oldest first, to a path or a text stream; returns how many.

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
        with replacing(path) as partial:
            if path.suffix == parquet.SUFFIX:
                return parquet.write(database.observations(), partial)
            with partial.open("wb") as raw, opened(raw) as stream:
                return _write(database, stream)
    except OSError as error:
        raise RecordsError(f"{path} cannot be written ({error.strerror or error}): choose another file") from error


def import_log(database: RecordDatabase, source: LogFile) -> ImportCounts:
    """Add the observations of a log, from a path or a text stream, plain or gzip, to those of the database.

    Importing a log again changes nothing. All or, when anything is raised, none of it is imported.

    Raises
    ------
    RecordsError
        The file cannot be read, is not a log, has a later schema version, is larger than a log can be, or has a
        malformed line that is not its torn end, or one of the future (the message gives the line's number); or the
        database cannot be written.
    """
    reader, read, added = _Reader(source), 0, 0
    with database.writing() as connection:
        take_turns(connection)
        for batch in _batches(reader.records()):
            read += len(batch)
            added += store(connection, batch)
    return ImportCounts(read, added, read - added, reader.torn)


def read_log(source: LogFile, on_torn: Callable[[str], None] | None = None) -> Iterator[Record]:
    """The records of a log, one for each key, without a database: for training. A torn end is left out; what is missing
    is then told to `on_torn` in one line. Raises as `import_log`.
    """
    yield from by_key(observations_of(source, on_torn))


def observations_of(source: LogFile, on_torn: Callable[[str], None] | None = None) -> Iterator[Record]:
    """What a log holds, line by line; otherwise as `read_log`."""
    reader = _Reader(source)
    yield from reader.records()
    if reader.torn and on_torn is not None:
        on_torn(reader.torn)


def _write(database: RecordDatabase, stream: TextIO) -> int:
    count = database.stats().observations
    header = {
        "format": FORMAT,
        "version": SCHEMA_VERSION,
        "records": count,
        "exported": now(),
        "collage": software_versions()["collage"],
    }
    stream.write(canonical_json(header) + "\n")
    written = 0
    for observation in database.observations():
        stream.write(observation.to_json() + "\n")
        written += 1
    return written


def _batches(observations: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(observations, BATCH)):
        yield batch


@dataclass
class _Reader:
    """Reads a log line by line; afterwards `torn` says what is missing at its end."""

    source: LogFile
    torn: str = field(default="", init=False)

    def records(self) -> Iterator[Record]:
        table = self._table()
        if table is not None:
            yield from self._rows(table)
            return
        name = str(self.source) if isinstance(self.source, (str, os.PathLike)) else "the log"
        promised, found, number, version, latest = 0, 0, 0, SCHEMA_VERSION, _latest()
        for number, line, complete in self._lines(name):
            if not line.strip():
                continue
            try:
                values = msgspec.json.decode(line)
                if not isinstance(values, dict):
                    raise msgspec.DecodeError("not a JSON object")
            except RecursionError as error:
                raise RecordsError(f"{name}: line {number} is malformed (it is nested too deeply)") from error
            except msgspec.DecodeError as error:
                if not complete and number > 1:
                    self.torn = f"{name} breaks off in line {number}: all whole lines before it were read"
                    return
                what = "it is not a benchmark log of Collage" if number == 1 else f"line {number} is malformed"
                raise RecordsError(f"{name}: {what} ({error})") from error
            if number == 1 or "format" in values:
                version, count = _check_header(values, f"{name}, line {number}")
                promised += count
                continue
            try:
                record = _record(values, version, latest)
            except RecordsError as error:
                raise RecordsError(f"{name}, line {number}: {error}") from error
            found += 1
            yield record
        if number == 0:
            raise RecordsError(f"{name} is empty: it is not a benchmark log of Collage")
        if not self.torn and found < promised:
            self.torn = f"{name} has {found} of the {promised} records that its header promises: its end is missing"

    def _table(self) -> Path | None:
        """The path of a log that is a table."""
        if not isinstance(self.source, (str, os.PathLike)):
            return None
        path = Path(self.source).expanduser()
        try:
            return path if parquet.is_parquet(path) else None
        except OSError as error:
            raise RecordsError(f"{self.source} cannot be read: {error.strerror or error}") from error

    def _rows(self, path: Path) -> Iterator[Record]:
        latest = _latest()
        version, lines = parquet.lines(path, max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size))
        _check_version(version, str(path))
        for number, values in enumerate(lines, 1):
            try:
                yield _record(values, SCHEMA_VERSION, latest)
            except RecordsError as error:
                raise RecordsError(f"{path}, row {number}: {error}") from error

    def _lines(self, name: str) -> Iterator[tuple[int, str, bool]]:
        """(number from 1, line, whether it ends in a line feed); a compressed file that breaks off just ends."""
        number = 0
        try:
            with _opened(self.source) as stream:
                while True:
                    try:
                        line = stream.readline(MAX_LINE + 1)
                    except EOFError:
                        self.torn = f"{name} breaks off after line {number}: all whole lines before it were read"
                        return
                    if not line:
                        return
                    number += 1
                    if len(line) > MAX_LINE:
                        raise RecordsError(
                            f"{name}: line {number} is longer than any of a log ({MAX_LINE:,} characters)"
                        )
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
        size = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        binary: IO[bytes] = raw
        if packed:
            binary = io.BufferedReader(_Limited(gzip.GzipFile(fileobj=raw), max(MAX_UNPACKED, MAX_RATIO * size)))
        with io.TextIOWrapper(binary, encoding="utf-8", newline="\n") as stream:
            yield stream


class _Limited(io.RawIOBase):
    """A compressed file that may not unpack to more than so many bytes."""

    def __init__(self, packed: gzip.GzipFile, limit: int) -> None:
        self._packed = packed
        self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._packed.read1(len(buffer))  # what is whole of a torn file
        self._left -= len(content)
        if self._left < 0:
            raise OSError(None, "it unpacks to far more than a log has")
        buffer[: len(content)] = content
        return len(content)


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


def _check_header(values: dict[str, Any], where: str) -> tuple[int, int]:
    """The log's version, and how many observations its header promises; 0 when it does not say."""
    if values.get("format") != FORMAT:
        raise RecordsError(f"{where}: the header of a benchmark log was expected ({FORMAT})")
    version = _check_version(values.get("version"), where)
    count = values.get("records", 0)
    if type(count) is not int:
        raise RecordsError(f"{where}: the header's number of records is {count!r}")
    return version, count


def _check_version(version: object, where: str) -> int:
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        raise RecordsError(
            f"{where}: the log has schema version {version}, this Collage reads versions 1 to {SCHEMA_VERSION}: "
            "import it with the Collage that wrote it"
        )
    return version


def _record(values: dict[str, Any], version: int, latest: str) -> Record:
    """The observation of a line, in a log of this version. Raises RecordsError."""
    if version == 1:
        wrong = sorted(set(SINCE_2) & set(values))
        if wrong:
            raise RecordsError(f"a record of version 1 has no {', '.join(wrong)}")
        values = {**values, **SINCE_2}
    record = Record.from_dict(values)
    check_json(record.description)
    check_json(record.device)
    if record.timestamp > latest:
        raise RecordsError(
            f"it was measured on {record.timestamp[:10]}, in the future: either its clock or ours is wrong"
        )
    return record


def _latest() -> str:
    """The last time that an observation can be of: a day from now, since two clocks differ."""
    clock = datetime.fromisoformat(max(now(), _WRITTEN)) + timedelta(days=1)
    return clock.astimezone(timezone.utc).isoformat(timespec="microseconds")
