"""The one table of a records database, and the way between its rows and records.

The parts of the key are columns of their own, so that statistics and selections are plain SQL; the primary key is the
key's digest. Workload descriptions are by far the largest field and repeat themselves: they are compressed.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from sqlalchemy import Column, Float, Integer, LargeBinary, MetaData, Row, Table, Text

from collage.records.key import RecordKey, canonical_json
from collage.records.record import Record

metadata = MetaData()
records = Table(
    "records",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("structure", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("backend_version", Text, nullable=False),
    Column("configuration", Text, nullable=False),
    Column("composites", Text, nullable=False, comment="JSON: [[label, [position, ...]], ...]"),
    Column("device", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("tvm_version", Text, nullable=False),
    Column("protocol", Text, nullable=False, comment="JSON object"),
    Column("status", Text, nullable=False),
    Column("seconds", Float),
    Column("spread", Float, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("timings", Text, nullable=False, comment="JSON: [seconds, ...]"),
    Column("reason", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("operators", Text, nullable=False, comment="JSON: [name, ...]"),
    Column("description", LargeBinary, comment="JSON object, compressed with zlib"),
    Column("device_info", Text, comment="JSON object"),
    Column("versions", Text, nullable=False, comment="JSON object"),
    Column("timestamp", Text, nullable=False),
)

_KEY_TEXT = ("kind", "structure", "backend", "backend_version", "configuration", "device", "threads", "tvm_version")
_PLAIN = ("status", "seconds", "spread", "samples", "reason", "label", "timestamp")


def to_row(record: Record) -> dict[str, Any]:
    """The columns of a record. Raises RecordsError when its description is not JSON."""
    key = record.key
    return {
        "digest": key.digest,
        **{name: getattr(key, name) for name in _KEY_TEXT},
        "composites": canonical_json(key.composites),
        "protocol": key.protocol,
        **{name: getattr(record, name) for name in _PLAIN},
        "timings": canonical_json(record.timings),
        "operators": canonical_json(record.operators),
        "description": None if record.description is None else zlib.compress(_text(record.description).encode()),
        "device_info": None if record.device is None else _text(record.device),
        "versions": _text(record.versions),
    }


def from_row(row: Row[Any]) -> Record:
    """The record of a row. Raises ValueError, TypeError or RecordsError when the row was damaged."""
    names = {name: getattr(row, name) for name in _KEY_TEXT}
    key = RecordKey.from_dict({**names, "composites": json.loads(row.composites), "protocol": json.loads(row.protocol)})
    try:
        description = None if row.description is None else json.loads(zlib.decompress(row.description))
    except zlib.error as error:
        raise ValueError(f"its description does not decompress: {error}") from error
    return Record(
        key=key,
        **{name: getattr(row, name) for name in _PLAIN},
        timings=tuple(json.loads(row.timings)),
        operators=tuple(json.loads(row.operators)),
        description=description,
        device=None if row.device_info is None else json.loads(row.device_info),
        versions=json.loads(row.versions),
    )


def _text(mapping: Any) -> str:
    return canonical_json(dict(mapping))
