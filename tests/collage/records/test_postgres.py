"""What can happen to a server happens: nothing that was acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from collage.cli.main import main
from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import Record, RecordDatabase, Selection, export_log, merge
from collage.records.aggregate import merged
from collage.records.places import ServerLost
from tests.postgres_server import PostgresServer

pytestmark = pytest.mark.scale
Make = Callable[..., Record]

#: Many threads, each with a database of its own: 25 writers in a process. Each says what was acknowledged.
WRITERS = """
import sys, threading
from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase, RecordKey
address, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
def key(structure):
    return RecordKey("candidate", structure, "b", "1", "c", (), "d", 1, "t", "{}")
def say(line):  # in one piece, of all threads
    sys.stdout.write(line + "\\n")
    sys.stdout.flush()
def write(number):
    with RecordDatabase(address, timeout_s=60) as database:
        say("ready")
        go.wait()
        for i in range(count):
            session = f"{name}-{number}-{i}"
            own, shared = key(session), key(f"shared {i % 7}")
            database.put_many([Record.of(k, Cost(1.0 + number), session=session) for k in (own, shared)])
            say(session)
go = threading.Event()
threads = [threading.Thread(target=write, args=(number,)) for number in range(25)]
for thread in threads: thread.start()
sys.stdin.readline()
go.set()
for thread in threads: thread.join()
"""


@pytest.fixture
def address(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def killed() -> Iterator[PostgresServer]:
    """A server that this test may kill."""
    server = PostgresServer()
    yield server
    server.stop()


def drop_connections(server: PostgresServer) -> None:
    server.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'collage'")


@contextmanager
def fifty_writers(address: str, count: int) -> Iterator[list[str]]:
    """Yields what was acknowledged so far; waits for the end of all of them."""
    acknowledged: list[str] = []
    command = [sys.executable, "-c", WRITERS, address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, name, str(count)], **pipes) for name in "ab"]  # type: ignore[call-overload]
    ready = [writer.stdout.readline() for writer in writers for _ in range(25)]
    readers = [threading.Thread(target=lambda w=w: acknowledged.extend(map(str.strip, w.stdout))) for w in writers]
    for writer, reader in zip(writers, readers, strict=True):
        reader.start()
        writer.stdin.write("go\n")
        writer.stdin.flush()
    try:
        assert ready == ["ready\n"] * 50
        yield acknowledged
        for writer, reader in zip(writers, readers, strict=True):
            reader.join(timeout=120)
            assert writer.wait(timeout=60) == 0
    finally:
        for writer in writers:
            writer.kill()


def assert_whole(address: str, acknowledged: list[str], count: int) -> None:
    """Everything is there, once, and the aggregates are those of it."""
    expected = {f"{name}-{number}-{i}" for name in "ab" for number in range(25) for i in range(count)}
    assert set(acknowledged) == expected and len(acknowledged) == len(expected)
    with RecordDatabase(address) as database:
        found = list(database.observations())
        assert sorted((o.session, o.key.structure == o.session) for o in found) == sorted(
            (session, own) for session in expected for own in (True, False)
        )
        of_key: dict[str, list[Record]] = {}
        for observation in found:
            of_key.setdefault(observation.key.digest, []).append(observation)
        costs = database.costs(o.key for o in found)
        assert {k.digest: c for k, c in costs.items()} == {d: merged(own).cost for d, own in of_key.items()}


def test_fifty_writers_at_once(address: str) -> None:
    with fifty_writers(address, 8) as acknowledged:
        pass
    assert_whole(address, acknowledged, 8)


@pytest.mark.long
def test_a_server_that_is_killed_in_mid_write_and_connections_that_are_cut_lose_nothing(
    killed: PostgresServer,
) -> None:
    address, pick = killed.new_database(), random.Random(0)
    with fifty_writers(address, 60) as acknowledged:
        for fault in range(60):
            before = len(acknowledged)
            if fault % 10 == 9:
                killed.kill()
                killed.start()
            else:
                drop_connections(killed)
            deadline = time.monotonic() + 30
            while len(acknowledged) < min(before + pick.randrange(1, 40), 3000) and time.monotonic() < deadline:
                time.sleep(0.002)
    assert_whole(address, acknowledged, 60)


def test_a_connection_that_is_cut_between_two_puts_is_replaced(
    address: str, postgres: PostgresServer, record: Make
) -> None:
    with RecordDatabase(address) as database:
        database.put(record(1))
        drop_connections(postgres)
        database.put(record(2))
        drop_connections(postgres)
        assert len(list(database)) == 2


def test_a_connection_that_is_cut_inside_a_put_stores_it_once(
    address: str, postgres: PostgresServer, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collage.records import store

    calls = []

    def cut(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            drop_connections(postgres)
        refresh(*arguments)  # type: ignore[arg-type]

    refresh = store.refresh
    monkeypatch.setattr(store, "refresh", cut)
    with RecordDatabase(address) as database:
        assert database.put_many([record(1), record(2)]) == 2
        assert len(calls) == 2 and database.stats().observations == 2


def test_an_acknowledgement_that_is_lost_stores_nothing_twice(
    address: str, record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordDatabase(address) as database:
        writing, lost = RecordDatabase.writing, [ServerLost("cut")]

        @contextmanager
        def unheard(self: RecordDatabase) -> Iterator[object]:
            with writing(self) as connection:
                yield connection
            if lost:
                raise lost.pop()

        monkeypatch.setattr(RecordDatabase, "writing", unheard)
        assert database.put_many([record(1)]) == 0, "the second time it was there"
        assert database.stats().observations == 1


def test_a_server_that_stays_away_is_one_line(killed: PostgresServer, record: Make) -> None:
    with RecordDatabase(killed.new_database(), timeout_s=2) as database:
        database.put(record(1))
        killed.kill()
        with pytest.raises(ServerLost) as caught:
            database.put(record(2))
        with pytest.raises(RecordsError):
            database.get(record(1).key)
        killed.start()
        database.put(record(2))
        assert len(database) == 2
    assert "\n" not in str(caught.value) and str(caught.value).startswith("postgresql+psycopg://collage@/")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://nobody.invalid/x?host=/nowhere", "No such file|could not connect|connection"),
        ("mysql://localhost/x", "not mysql:"),
        ("postgresql+asyncpg://localhost/x", "not postgresql.asyncpg:"),
        ("postgresql://host:port/x", "at an address like"),
    ],
)
def test_addresses_of_nothing_are_one_line(address: str, said: str) -> None:
    with pytest.raises(RecordsError, match=said) as caught:
        RecordDatabase(address, timeout_s=2)
    assert "\n" not in str(caught.value)


def test_a_database_that_is_not_there_and_passwords(postgres: PostgresServer) -> None:
    with pytest.raises(RecordsError, match=r"none.*does not exist") as caught:
        RecordDatabase(postgres.address("none").replace("collage@", "collage:secret@"), timeout_s=2)
    assert "secret" not in str(caught.value)


def test_tables_of_others_are_left_as_they_are(address: str, postgres: PostgresServer) -> None:
    name = str(make_url(address).database)
    postgres.run("CREATE TABLE observations (bird text)", name)
    with pytest.raises(RecordsError, match="another program"):
        RecordDatabase(address)
    assert postgres.run("SELECT count(*) FROM observations", name) == [(0,)]


def test_another_schema_version_is_refused(address: str, postgres: PostgresServer) -> None:
    RecordDatabase(address).close()
    postgres.run("UPDATE collage_schema SET version = 7", str(make_url(address).database))
    with pytest.raises(RecordsError, match="schema version 7"):
        RecordDatabase(address)


def test_many_may_open_a_new_database_at_once(address: str) -> None:
    problems: list[Exception] = []

    def open_it() -> None:
        try:
            RecordDatabase(address).close()
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_who_may_only_read_looks_up(address: str, postgres: PostgresServer, record: Make) -> None:
    name = str(make_url(address).database)
    with RecordDatabase(address) as database:
        database.put(record(1))
    postgres.run(f"CREATE ROLE reader_{name} LOGIN", name)
    postgres.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_{name}", name)
    with RecordDatabase(postgres.address(name, f"reader_{name}")) as database:
        assert database.get(record(1).key) is not None
        with pytest.raises(RecordsError, match="may only read"):
            database.require_writable()
        with pytest.raises(RecordsError, match="the role may not do that"):
            database.put(record(2))


def test_large_batches_of_several_writers_do_not_wait_for_each_other_for_ever(address: str, record: Make) -> None:
    """Whatever the order of their keys."""
    batches = [[record(i) for i in order] for order in (range(300), reversed(range(300)), range(150, 450))]

    def put(batch: list[Record]) -> None:
        with RecordDatabase(address) as database:
            database.put_many(batch)

    threads = [threading.Thread(target=put, args=(batch,)) for batch in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    with RecordDatabase(address) as database:
        assert len(database) == 450


def test_databases_are_merged_whatever_they_are(address: str, record: Make, tmp_path: Path) -> None:
    put = [replace(record(i), session=f"{i}") for i in range(10)]
    with RecordDatabase(tmp_path / "a.db") as file, RecordDatabase(address) as server:
        file.put_many(put[:6])
        server.put_many(put[4:])
        export_log(file, tmp_path / "log.jsonl.gz")
        assert merge(server, tmp_path / "a.db").added == 4
        assert merge(server, tmp_path / "log.jsonl.gz").added == 0
        assert merge(file, address).added == 4
        assert {o.session for o in file.observations()} == {o.session for o in server.observations()}


def test_the_command_line_takes_addresses(
    address: str, record: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["records", *arguments])
        out, err = capsys.readouterr()
        assert ended.value.code in (0, None), err
        return out

    secret = address.replace("collage@", "collage:secret@")
    with RecordDatabase(tmp_path / "a.db") as file:
        file.put_many([record(1), record(2, Cost.invalid("no"))])
    said = run("merge", str(tmp_path / "a.db"), "--records", secret)
    assert "2 added" in said and "secret" not in said
    said = run("stats", "--records", secret)
    assert "2 records of 2 observations" in said and "secret" not in said and "unknown" in said
    assert len(run("list", "--records", secret).splitlines()) == 2
    assert "Wrote 2 observations" in run("export", str(tmp_path / "log.jsonl"), "--records", secret)
    assert "would forget 1 observations" in run("forget", "--status", "invalid", "--dry-run", "--records", secret)
    assert "2 known already" in run("import", str(tmp_path / "log.jsonl"), "--records", secret)


def test_forgetting_waits_for_writers(address: str, record: Make) -> None:
    """What a writer needs of others' texts is not removed under its hands."""
    stop = threading.Event()

    def write(start: int) -> None:
        with RecordDatabase(address) as database:
            for i in range(start, start + 30):
                database.put(record(i))

    def forget() -> None:
        with RecordDatabase(address) as database:
            while not stop.is_set():
                database.forget(Selection())

    writers = [threading.Thread(target=write, args=(start,)) for start in (0, 100, 200)]
    forgetter = threading.Thread(target=forget)
    for thread in (*writers, forgetter):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    forgetter.join()
    with RecordDatabase(address) as database:
        write(500)
        assert [o.description for o in database.observations() if not o.description] == []
