"""What is put is there, exactly, for every process, as soon as `put` returns."""

import math
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import Record, RecordDatabase, default_path
from collage.records.database import DatabaseStats
from collage.records.places import sqlite


def test_a_record_comes_back_exactly(database, record) -> None:
    put = record()
    database.put(put)
    assert database.get(put.key) == put
    assert database.get(put.key).cost == Cost(1 / 3, 1e-7 / 3, 3, "converged")


def test_a_minimal_record_comes_back_exactly(database, key) -> None:
    put = Record(key(), "ok", 0.0)
    database.put(put)
    assert database.get(key()) == put


def test_an_invalid_record_keeps_its_reason(database, record) -> None:
    put = record(cost=Cost.invalid("exit status 134: \udcff abort()"))
    database.put(put)
    found = database.get(put.key)
    assert found == put and found.seconds is None and found.status == "invalid"
    assert found.cost.is_invalid and found.cost.reason == "exit status 134: ? abort()"


def test_a_miss_is_none(database, record, key) -> None:
    database.put(record("a"))
    assert database.get(key("b")) is None
    assert database.get(key("a", threads=3)) is None


def test_an_unknown_cost_is_not_a_record(record) -> None:
    with pytest.raises(RecordsError, match="unknown cost"):
        record(cost=Cost.unknown())


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": None},
        {"seconds": math.inf},
        {"seconds": -1.0},
        {"seconds": True},
        {"spread": math.nan},
        {"status": "good"},
        {"timings": (math.nan,)},
        {"timestamp": "yesterday"},
        {"timestamp": "2026-13-45T00:00:00.000000+00:00"},
        {"conditions": {"load": math.nan}},
        {"samples": 1.5},
    ],
)
def test_a_wrong_record_is_an_error(record, change: dict[str, object]) -> None:
    with pytest.raises(RecordsError):
        replace(record(), **change)


def test_samples_are_recorded_to_five_digits(key) -> None:
    put = Record.of(key(), Cost(6.720200326526538e-05), timings=(6.720200326526538e-05, 0.1 + 0.2, 0.0))
    assert put.timings == (6.7202e-05, 0.3, 0.0)
    assert put.seconds == 6.720200326526538e-05


def test_every_observation_of_a_key_stays_and_they_make_one_record(database, record) -> None:
    put = [record(cost=Cost(1.0)), record(cost=Cost(2.0))]
    for each in (*put, put[0]):
        database.put(each)
    assert len(database) == 1 and database.stats().observations == 2
    assert list(database.observations()) == put
    assert [r.seconds for r in database] == [2.0], "of equals of one session the newest"


def test_records_stay_when_the_database_is_opened_again(tmp_path: Path, record) -> None:
    path = tmp_path / "deep" / "down" / "records.db"
    with RecordDatabase(path) as database:
        database.put(record())
    assert [p.name for p in path.parent.iterdir()] == ["records.db"]  # one self-contained file
    with RecordDatabase(path) as database:
        assert list(database) == [record_ := database.get(record().key)]
        assert record_ is not None


def test_the_default_is_in_the_users_cache_folder(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, **_: str(tmp_path / name))
    assert default_path() == tmp_path / "collage" / "records.db"
    with RecordDatabase() as database:
        assert database.path == default_path() and default_path().is_file()


def test_many_keys_at_once(database, record, key) -> None:
    put = [record(i, Cost.invalid("no") if i % 7 == 0 else Cost(i * 1e-6, samples=i)) for i in range(1200)]
    database.put_many(put)
    wanted = [key(i) for i in range(0, 2400, 2)]
    found = database.get_many(wanted)
    assert found == {r.key: r for r in put[::2]}
    assert database.costs(wanted) == {k: r.cost for k, r in found.items()}
    assert database.get_many([]) == database.costs([]) == {}


def test_a_batch_is_stored_whole_or_not_at_all(database, record) -> None:
    wrong = replace(record("b"), description={"not json": {1, 2}})
    with pytest.raises(RecordsError, match="type set"):
        database.put_many([record("a"), wrong])
    assert len(database) == 0
    database.put(record("a"))
    assert len(database) == 1


def test_records_come_as_they_were_stored_whatever_the_clock_said_and_by_property(database, record) -> None:
    put = [record(i, backend=("tvm", "openvino")[i % 2], kind=("candidate", "plan")[i // 2 % 2]) for i in range(8)]
    stamped = [replace(r, timestamp=f"2026-01-01T00:00:0{9 - i}.000000+00:00") for i, r in enumerate(put)]
    database.put_many(stamped)
    assert list(database) == stamped
    assert list(database.matching(kind="plan", backend="tvm")) == [stamped[2], stamped[6]]
    assert list(database.matching(device="another")) == []


def test_what_is_put_during_an_iteration_does_not_block_it(database, record) -> None:
    database.put_many(record(i) for i in range(3))
    for i, _ in enumerate(database):
        database.put(record(f"new {i}"))
    assert len(database) == 6


def test_stats_count(database, record) -> None:
    empty = database.stats()
    assert (empty.records, empty.by_kind, empty.oldest, empty.newest) == (0, {}, None, None)
    a = replace(record("a", backend="tvm"), timestamp="2026-01-01T00:00:00.000000+00:00")
    b = replace(record("b", Cost.invalid("no"), device="other"), timestamp="2026-02-01T00:00:00.000000+00:00")
    device = {"model": "a processor", "host": "a host"}
    c = replace(record("c", kind="transition"), device=device, timestamp="2026-01-15T00:00:00.000000+00:00")
    database.put_many([a, b, c, replace(c, session="another")])
    assert database.stats() == DatabaseStats(
        name=database.name,
        size_bytes=database.stats().size_bytes,
        records=3,
        observations=4,
        by_kind={"candidate": 2, "transition": 1},
        by_backend={"openvino": 2, "tvm": 1},
        by_device={"cpu-x86_64-2-0123456789ab": 2, "other": 1},
        by_status={"invalid": 1, "ok": 2},
        by_host={"": 2, "a host": 2},
        oldest=a.timestamp,
        newest=b.timestamp,
    )


def test_a_database_that_can_be_written_says_so_and_stays_as_it_is(database, record) -> None:
    database.put(record())
    before = list(database)
    database.require_writable()
    assert list(database) == before


def test_no_character_is_lost(database, record) -> None:
    """PostgreSQL has no text with a zero in it."""
    odd = "C:\\0 \0 \\\\ \\ \0\\0 %s é"
    put = replace(record(), reason=odd, label=odd, session=odd)
    database.put(put)
    assert list(database.observations()) == [put] and database.costs([put.key])[put.key].reason == odd


def test_threads_share_a_database(database, record) -> None:
    def put(start: int) -> None:
        for i in range(start, start + 15):
            database.put(record(i))

    threads = [threading.Thread(target=put, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(database) == 45


WRITER = """
import sys
from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase, RecordKey
path, name = sys.argv[1:]
with RecordDatabase(path) as database:  # the two race for the creation too
    for i in range(40):
        own, shared = (RecordKey("candidate", f"{of}{i}", "b", "1", "c", (), "d", 1, "t", "{}") for of in (name, "s"))
        database.put(Record.of(own, Cost(i)))
        assert database.get(own).seconds == i
        database.put(Record.of(shared, Cost(ord(name) + i)))
"""


def test_two_processes_write_at_once(new_place) -> None:
    path = new_place()
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stderr=-1, text=True) for name in "ab"]
    errors = [writer.communicate(timeout=120)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    with RecordDatabase(path) as database:
        found = {r.key.structure: r for r in database}
        assert set(found) == {f"{name}{i}" for name in "abs" for i in range(40)}
        assert all(found[f"s{i}"].seconds == ord("a") + i + 0.5 for i in range(40)), "each is a session"
        assert database.costs(r.key for r in found.values()) == {r.key: r.cost for r in found.values()}
        assert len({o.session for o in database.observations()}) == 2


def test_look_ups_are_by_index(database) -> None:
    """Whatever the size of the database."""
    explain = "EXPLAIN QUERY PLAN" if database.path is not None else "EXPLAIN"
    with database.writing() as connection:
        if database.path is None:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # faster while there are few rows
        for table in ("records", "observations", "texts"):
            query = f"{explain} SELECT * FROM {table} WHERE digest IN ('a', 'b')"
            plan = " ".join(str(row) for row in connection.exec_driver_sql(query)).upper()
            assert "INDEX" in plan and "SEQ SCAN" not in plan, plan


def test_a_database_that_another_process_makes_while_it_is_opened(tmp_path: Path, monkeypatch) -> None:
    path, read = tmp_path / "records.db", sqlite._pragma

    def another_is_faster(connection: Connection, name: str) -> int:
        found = read(connection, name)
        monkeypatch.setattr(sqlite, "_pragma", read)
        RecordDatabase(path, timeout_s=5.0).close()
        return found

    monkeypatch.setattr(sqlite, "_pragma", another_is_faster)
    with RecordDatabase(path) as database:
        assert len(database) == 0
