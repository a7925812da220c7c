"""The tables of a records database, and the way between their rows and observations.

`observations` is what was measured, append-only. `records` has one row per key: the parts of the key as columns of
their own, so that statistics and selections are plain SQL, and the numbers that `collage.records.aggregate` makes of
the key's observations, kept in the same transaction, so that costs are one look-up. Descriptions of workloads and of
machines are by far the largest fields and repeat themselves: `texts` has each of them once, compressed, by its digest.

An observation's identity is a digest of all that it says: stored twice it is there once, and a row that was damaged or
changed is noticed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Float, Integer, LargeBinary, MetaData, Row, Table, Text
from sqlalchemy.types import TypeDecorator

from collage.errors import RecordsError
from collage.records.key import RecordKey, canonical_json
from collage.records.record import Record

#: Of 64 bits in every database; SQLite numbers rows only where the type is called INTEGER.
_Number = BigInteger().with_variant(Integer(), "sqlite")


class _FreeText(TypeDecorator[str]):
    """What libraries and people wrote, to the last character: PostgreSQL has none of code 0."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return value.replace("\\", r"\\").replace("\0", r"\0")

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or dialect.name != "postgresql":
            return value
        return _ESCAPED.sub(lambda found: "\0" if found[0] == r"\0" else "\\", value)


_ESCAPED = re.compile(r"\\[\\0]")
metadata = MetaData()
records = Table(
    "records",
    metadata,
    Column("id", _Number, primary_key=True, comment="in the order in which the keys were first stored"),
    Column("digest", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("structure", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("backend_version", Text, nullable=False),
    Column("configuration", Text, nullable=False),
    Column("composites", Text, nullable=False, comment="JSON: [[label, [position, ...]], ...]"),
    Column("device", Text, nullable=False),
    Column("threads", _Number, nullable=False),
    Column("tvm_version", Text, nullable=False),
    Column("protocol", Text, nullable=False, comment="JSON object"),
    Column("status", Text, nullable=False, comment="this and the next columns: of the aggregate"),
    Column("seconds", Float),
    Column("spread", Float, nullable=False),
    Column("samples", _Number, nullable=False),
    Column("reason", _FreeText, nullable=False),
)
observations = Table(
    "observations",
    metadata,
    Column("id", _Number, primary_key=True, comment="in the order in which they were stored"),
    Column("identity", Text, nullable=False, unique=True),
    Column("digest", Text, nullable=False, index=True, comment="of the key"),
    Column("session", _FreeText, nullable=False),
    Column("timestamp", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("seconds", Float),
    Column("spread", Float, nullable=False),
    Column("samples", _Number, nullable=False),
    Column("timings", Text, nullable=False, comment="JSON: [seconds, ...]"),
    Column("conditions", Text, nullable=False, comment="JSON object"),
    Column("reason", _FreeText, nullable=False),
    Column("label", _FreeText, nullable=False),
    Column("operators", Text, nullable=False, comment="of texts; JSON: [name, ...]"),
    Column("description", Text, comment="of texts; JSON object"),
    Column("device_info", Text, comment="of texts; JSON object"),
    Column("versions", Text, nullable=False, comment="of texts; JSON object"),
)
texts = Table(
    "texts",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False, comment="compressed with zlib"),
)

KEY_TEXT = ("kind", "structure", "backend", "backend_version", "configuration", "device", "threads", "tvm_version")
PLAIN = ("session", "timestamp", "status", "seconds", "spread", "samples", "reason", "label")
#: Columns of an observation that name a text.
SHARED = ("operators", "description", "device_info", "versions")
#: Of a text; more is no description of anything, and would fill the memory.
_MAX_BYTES = 1 << 26


def key_row(key: RecordKey) -> dict[str, Any]:
    """The columns of a key, without those of the aggregate."""
    parts = {name: getattr(key, name) for name in KEY_TEXT}
    return {"digest": key.digest, **parts, "composites": canonical_json(key.composites), "protocol": key.protocol}


def observation_row(record: Record) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The columns of an observation, and the texts that they name. Raises RecordsError when one is not JSON."""
    contents = {
        "operators": canonical_json(record.operators),
        "description": None if record.description is None else canonical_json(dict(record.description)),
        "device_info": None if record.device is None else canonical_json(dict(record.device)),
        "versions": canonical_json(dict(record.versions)),
    }
    own = {
        **{name: getattr(record, name) for name in PLAIN},
        "timings": canonical_json(record.timings),
        "conditions": canonical_json(dict(record.conditions)),
    }
    return with_identity(record.key.digest, own, contents)


def with_identity(
    digest: str, own: Mapping[str, Any], contents: Mapping[str, str | None]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """As `observation_row`, of the digest of a key, an observation's own columns, and its texts."""
    named = {name: None if text is None else short_digest(text.encode()) for name, text in contents.items()}
    found = {d: text.encode() for name, text in contents.items() if text is not None and (d := named[name]) is not None}
    row = {"digest": digest, **own, **named}
    return {**row, "identity": identity_of(row)}, found


def identity_of(row: Mapping[str, Any]) -> str:
    """The digest of all columns of an observation but its number."""
    said = [row["digest"], row["timings"], row["conditions"], *(row[name] for name in (*PLAIN, *SHARED))]
    return short_digest(json.dumps(said).encode())


def short_digest(content: bytes) -> str:
    """128 bits, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()[:32]


def text_of(row: Row[Any]) -> Any:
    """The value of a row of `texts`. Raises ValueError when it was damaged."""
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(row.content, _MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"a text does not decompress: {error}") from error
    if unpacker.unconsumed_tail or short_digest(content) != row.digest:
        raise ValueError("a text was changed")
    return json.loads(content)


def key_of_row(row: Row[Any]) -> RecordKey:
    """The key of a row of `records`. Raises ValueError, TypeError or RecordsError when it was changed or damaged."""
    parts = {name: getattr(row, name) for name in KEY_TEXT}
    key = RecordKey.from_dict({**parts, "composites": json.loads(row.composites), "protocol": json.loads(row.protocol)})
    if key.digest != row.digest:
        raise RecordsError("its key was changed")
    return key


def observation_of(row: Row[Any], key: RecordKey, known: Mapping[str, Any]) -> Record:
    """The observation of a row, its key, and the texts by digest. Raises as `key_of_row`, or KeyError."""
    if identity_of(row._asdict()) != row.identity:
        raise ValueError("it was changed")
    shared: dict[str, Any] = {name: known[d] if (d := getattr(row, name)) is not None else None for name in SHARED}
    return Record(
        key=key,
        **{name: getattr(row, name) for name in PLAIN},
        timings=tuple(json.loads(row.timings)),
        conditions=json.loads(row.conditions),
        operators=tuple(shared["operators"]),
        description=shared["description"],
        device=shared["device_info"],
        versions=shared["versions"],
    )


def named_texts(rows: Iterable[Row[Any]]) -> list[str]:
    """The digests of all texts that observations name, each once."""
    return list(dict.fromkeys(d for row in rows for name in SHARED if (d := getattr(row, name)) is not None))
