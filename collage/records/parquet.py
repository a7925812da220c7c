"""Benchmark logs as tables of Apache Parquet, for tools that read columns: DuckDB, Spark, pandas.

One row is one observation, and the columns have the names of those in the database (docs/RECORDS.md). What a table says
is what the same log says as JSON lines, bit by bit. `pyarrow` reads and writes it (the extra `scale`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from collage.errors import RecordsError
from collage.records.key import canonical_json
from collage.records.record import SCHEMA_VERSION, Record

SUFFIX = ".parquet"
_MAGIC = b"PAR1"
#: The schema version, in the metadata of the file.
_VERSION = b"collage-records"
_KEY_TEXT = ("kind", "structure", "backend", "backend_version", "configuration", "device", "tvm_version")
_KEY_JSON = ("composites", "protocol")
_TEXT = ("status", "reason", "label", "timestamp", "session")
#: Columns of JSON, by the fields of an observation.
_JSON = {"description": "description", "device": "device_info", "versions": "versions", "conditions": "conditions"}
_ROWS = 2000


def is_parquet(path: Path) -> bool:
    """Whether a file begins like a table. Raises OSError."""
    with path.open("rb") as raw:
        return raw.read(len(_MAGIC)) == _MAGIC


def write(observations: Iterable[Record], path: Path) -> int:
    """Write a table; how many observations. Raises RecordsError without `pyarrow`, OSError where it cannot be."""
    pyarrow = _pyarrow()
    schema, written, left = _schema(pyarrow), 0, iter(observations)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while rows := [_row(record) for record in islice(left, _ROWS)]:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
            written += len(rows)
    return written


def lines(path: Path, most_bytes: int) -> tuple[int, Iterator[dict[str, Any]]]:
    """The schema version of a table, and its rows as the objects of a log's lines.

    Raises
    ------
    RecordsError
        It is damaged, is no table of records, or unpacks to more bytes than that; or there is no `pyarrow`.
    """
    pyarrow = _pyarrow()
    try:
        table = pyarrow.parquet.ParquetFile(path)
        groups = range(table.metadata.num_row_groups)
        unpacked = sum(table.metadata.row_group(i).total_byte_size for i in groups)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    version = (table.schema_arrow.metadata or {}).get(_VERSION, b"")
    if not version.isdigit() or set(table.schema_arrow.names) != set(_schema(pyarrow).names):
        raise RecordsError(f"{path} is a table, but not a benchmark log of Collage")
    if unpacked > most_bytes:
        raise RecordsError(f"{path} unpacks to far more than a log has")

    def rows() -> Iterator[dict[str, Any]]:
        try:
            for batch in table.iter_batches(batch_size=_ROWS):
                yield from map(_line, batch.to_pylist())
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise _damaged(path, error) from error

    return int(version), rows()


def _row(record: Record) -> dict[str, Any]:
    key = record.key
    return {
        **{name: getattr(key, name) for name in _KEY_TEXT},
        "threads": key.threads,
        "composites": canonical_json(key.composites),
        "protocol": key.protocol,
        **{name: getattr(record, name) for name in _TEXT},
        **{name: getattr(record, name) for name in ("seconds", "spread", "samples", "timings", "operators")},
        **{column: _text(getattr(record, name)) for name, column in _JSON.items()},
    }


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    key = {name: row[name] for name in (*_KEY_TEXT, "threads")} | {name: json.loads(row[name]) for name in _KEY_JSON}
    own = {name: row[name] for name in (*_TEXT, "seconds", "spread", "samples", "timings", "operators")}
    return {"key": key, **own, **{name: _value(row[column]) for name, column in _JSON.items()}}


def _text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else canonical_json(dict(value))


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _schema(pyarrow: Any) -> Any:
    text, whole, real = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    columns = {
        **dict.fromkeys((*_KEY_TEXT, *_KEY_JSON, *_TEXT, *_JSON.values()), text),
        **{"threads": whole, "samples": whole, "seconds": real, "spread": real},
        **{"timings": pyarrow.list_(real), "operators": pyarrow.list_(text)},
    }
    return pyarrow.schema(list(columns.items()), metadata={_VERSION: str(SCHEMA_VERSION).encode()})


def _damaged(path: Path, error: Exception) -> RecordsError:
    return RecordsError(f"{path} is damaged: {' '.join(str(error).split())[:300]}")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise RecordsError(f"tables need the package {error.name}: pip install 'collage-tvm[scale]'") from error
    return pyarrow
