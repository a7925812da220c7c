"""A database of schema version 1 is brought up to date where it lies, whole or not at all."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import Record, RecordDatabase, import_log, read_log, read_records
from collage.records.key import canonical_json

#: As version 0.1.0 made it.
SCHEMA_1 = """
CREATE TABLE records (
    digest TEXT NOT NULL, kind TEXT NOT NULL, structure TEXT NOT NULL, backend TEXT NOT NULL,
    backend_version TEXT NOT NULL, configuration TEXT NOT NULL, composites TEXT NOT NULL, device TEXT NOT NULL,
    threads INTEGER NOT NULL, tvm_version TEXT NOT NULL, protocol TEXT NOT NULL, status TEXT NOT NULL, seconds FLOAT,
    spread FLOAT NOT NULL, samples INTEGER NOT NULL, timings TEXT NOT NULL, reason TEXT NOT NULL, label TEXT NOT NULL,
    operators TEXT NOT NULL, description BLOB, device_info TEXT, versions TEXT NOT NULL, timestamp TEXT NOT NULL,
    PRIMARY KEY (digest)
);
PRAGMA application_id=0x434C4C47;
PRAGMA user_version=1;
"""


def row_1(record: Record) -> dict[str, Any]:
    key = record.key.as_dict()
    plain = ("status", "seconds", "spread", "samples", "reason", "label", "timestamp")
    return {
        **{
            name: canonical_json(value) if isinstance(value, (dict, list, tuple)) else value
            for name, value in key.items()
        },
        "digest": record.key.digest,
        **{name: getattr(record, name) for name in plain},
        "timings": canonical_json(record.timings),
        "operators": canonical_json(record.operators),
        "description": record.description and zlib.compress(canonical_json(dict(record.description)).encode()),
        "device_info": record.device and canonical_json(dict(record.device)),
        "versions": canonical_json(dict(record.versions)),
    }


def line_1(record: Record) -> str:
    values = json.loads(record.to_json())
    del values["session"], values["conditions"]
    return canonical_json(values) + "\n"


@pytest.fixture
def records(record: Callable[..., Record]) -> list[Record]:
    """As version 1 knew them: of no known session, in no known conditions."""
    made = [record(i, Cost.invalid("no ☃") if i % 5 == 0 else Cost(i / 7, i / 7e3, i)) for i in range(700)]
    made[3] = replace(made[3], description=None, device=None, timestamp="2099-01-01T00:00:00.000000+00:00")
    return [replace(r, session="") for r in made]


@pytest.fixture
def old(tmp_path: Path, records: list[Record]) -> Path:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA_1)
    rows = [row_1(record) for record in records]
    names = list(rows[0])
    values = ", ".join("?" * len(names))
    connection.executemany(
        f"INSERT INTO records ({', '.join(names)}) VALUES ({values})", [list(r.values()) for r in rows]
    )
    connection.commit()
    connection.close()
    return path


def test_nothing_is_lost(old: Path, records: list[Record]) -> None:
    with RecordDatabase(old) as database:
        assert {r.key: r for r in database} == {r.key: r for r in records}
        assert len(list(database.observations())) == len(records)
        assert database.costs(r.key for r in records) == {r.key: r.cost for r in records}
        database.put(replace(records[1], session="new"))
        assert len(database) == len(records)
    connection = sqlite3.connect(old)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} == {
        "records",
        "observations",
        "texts",
    }


def test_a_reader_finds_all_of_it(old: Path, records: list[Record]) -> None:
    assert {r.key: r for r in read_records(old)} == {r.key: r for r in records}


def test_a_migration_that_is_broken_off_leaves_the_file_as_it_was(
    old: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    from collage.records import schema

    calls = iter([schema.refresh, None])
    with monkeypatch.context() as patch:
        patch.setattr(schema, "refresh", lambda *args: next(calls)(*args))  # type: ignore[misc]
        with pytest.raises(TypeError):
            RecordDatabase(old)
    connection = sqlite3.connect(old)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM records").fetchone() == (len(records),)
    connection.close()
    with RecordDatabase(old) as database:
        assert len(database) == len(records)


def test_a_full_disk_is_one_line_and_leaves_the_file_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old.read_bytes()

    def limited(connection: Any, _: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # in effect the pages that the file has

    monkeypatch.setattr("collage.records.places.sqlite._make_durable", limited)
    with pytest.raises(RecordsError, match=r"schema version 1.*as it was.*the disk is full") as caught:
        RecordDatabase(old)
    assert "\n" not in str(caught.value) and old.read_bytes() == before


def test_a_database_that_cannot_be_written_is_one_line(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old.read_bytes()

    def read_only(connection: Any, _: object) -> None:
        connection.execute("PRAGMA query_only=1")

    monkeypatch.setattr("collage.records.places.sqlite._make_durable", read_only)
    with pytest.raises(RecordsError, match=r"schema version 1.*as it was.*read-only") as caught:
        RecordDatabase(old)
    assert "\n" not in str(caught.value) and old.read_bytes() == before


def test_a_damaged_record_of_version_1_stays_one(old: Path, records: list[Record]) -> None:
    connection = sqlite3.connect(old)
    connection.execute("UPDATE records SET description = x'00' WHERE structure = '7'")
    connection.execute("UPDATE records SET timestamp = '2026-13-45' WHERE structure = '8'")
    connection.commit()
    connection.close()
    with RecordDatabase(old) as database:
        for number in (7, 8):
            with pytest.raises(RecordsError, match="damaged record"):
                database.get(records[number].key)
        assert database.get(records[9].key) == records[9]


def test_a_log_of_version_1_is_read_everywhere_and_is_the_same_observations(
    old: Path, records: list[Record], tmp_path: Path
) -> None:
    log = tmp_path / "old.jsonl"
    known = [r for r in records if r.timestamp < "2099"]
    log.write_text('{"format":"collage-records","version":1}\n' + "".join(map(line_1, known)))
    assert list(read_log(log)) == list(read_records(log)) == known
    with RecordDatabase(old) as database:
        assert import_log(database, log).known == len(known)
    with RecordDatabase(tmp_path / "new.db") as database:
        assert import_log(database, log).added == len(known)
        assert list(database) == known


def test_a_log_of_version_1_has_no_fields_of_version_2(records: list[Record], tmp_path: Path) -> None:
    log = tmp_path / "old.jsonl"
    log.write_text('{"format":"collage-records","version":1}\n' + records[0].to_json() + "\n")
    with pytest.raises(RecordsError, match=r"line 2.*version 1 has no conditions, session"):
        list(read_log(log))


def test_two_processes_may_open_it_at_once(old: Path, records: list[Record]) -> None:
    """The second one finds the work done."""
    with RecordDatabase(old) as first, RecordDatabase(old) as second:
        assert len(first) == len(second) == len(records)
    assert not os.path.exists(f"{old}-journal")
