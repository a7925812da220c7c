"""What can happen to a file happens: each is one clear line, and nothing that was stored is lost."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.errors import RecordsError
from collage.records import RecordDatabase

PRELUDE = """
import os, sys
from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import Record, RecordDatabase, RecordKey
path = sys.argv[1]
def record(i, size=0):
    key = RecordKey("candidate", str(i), "b", "1", "c", (), "d", 1, "t", "{}")
    return Record.of(key, Cost(i), description={"noise": os.urandom(size).hex()})
"""


def run(code: str, *arguments: str, prefix: tuple[str, ...] = (), **options: object) -> str:
    """Run code in a process of its own and give what it printed."""
    command = [*prefix, sys.executable, "-c", PRELUDE + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def structures(path: Path) -> set[str]:
    with RecordDatabase(path) as database:
        return {r.key.structure for r in database}


@pytest.fixture
def filled(tmp_path: Path, record) -> Path:
    path = tmp_path / "records.db"
    with RecordDatabase(path) as database:
        database.put_many(record(i) for i in range(200))
    return path


# A process that is killed


@pytest.mark.parametrize("seed", range(4))
def test_every_put_that_returned_survives_sigkill(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "records.db"
    code = PRELUDE + "\ndb = RecordDatabase(path)\nfor i in range(10**6): db.put(record(i, 5000)); print(i, flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pick = random.Random(seed)
    for _ in range(pick.randrange(1, 30)):
        assert child.stdout.readline()
    time.sleep(pick.uniform(0, 0.02))  # somewhere inside a later put
    child.send_signal(signal.SIGKILL)
    returned = child.stdout.read().split()
    child.wait(timeout=60)
    last = int(returned[-1]) if returned else 0
    assert structures(path) >= {str(i) for i in range(last + 1)}
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_sigkill_in_mid_write_rolls_back_what_was_half_written(filled: Path) -> None:
    code = PRELUDE + "\nRecordDatabase(path).put_many([record(10**4 + i, 10**4) for i in range(3000)])"
    before, size = structures(filled), filled.stat().st_size
    child = subprocess.Popen([sys.executable, "-c", code, str(filled)])
    journal = filled.with_name("records.db-journal")
    deadline = time.monotonic() + 60
    while not (journal.exists() and filled.stat().st_size > 2 * size):  # uncommitted pages have reached the file itself
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    assert journal.exists()
    assert structures(filled) == before
    assert sqlite3.connect(filled).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_database_that_another_process_holds_is_waited_for_and_then_reported(filled: Path, record) -> None:
    holder = sqlite3.connect(filled, isolation_level=None)
    with RecordDatabase(filled, timeout_s=0.2) as database:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(RecordsError, match=r"in use by another process.* 0\.2 s"):
            database.put(record("late"))
        with pytest.raises(RecordsError, match="in use"):
            database.get(record("late").key)
        holder.execute("ROLLBACK")
        database.put(record("late"))
        assert database.get(record("late").key) is not None


# A full disk

FILL = """
database, count = RecordDatabase(path), 0
LIMIT
try:
    for i in range(10**6):
        database.put(record(i, 5000))
        count += 1
except RecordsError as error:
    print(error)
assert count > 0
assert len(list(database)) == count, "a stored record was lost"
assert not os.path.exists(path + "-journal")
FREE
database.put(record(count, 5000))
assert len(list(RecordDatabase(path))) == count + 1
"""


def unshared_tmpfs(folder: Path, size: str) -> tuple[str, ...]:
    """A command prefix that runs a command with a small disk mounted at `folder`; skips where that is not allowed."""
    script = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    prefix = ("unshare", "-rm", "sh", "-c", script, str(folder))
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs user namespaces")
    return prefix


def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    prefix = unshared_tmpfs(tmp_path, "2m")
    filler = str(tmp_path / "filler")
    code = FILL.replace("LIMIT", f"open({filler!r}, 'wb').write(bytes(2**20))").replace(
        "FREE", f"os.remove({filler!r})"
    )
    printed = run(code, str(tmp_path / "records.db"), prefix=prefix)
    assert "records.db: the disk is full" in printed and "--records" in printed and printed.count("\n") == 1


def test_a_full_database_is_reported_where_no_disk_can_be_mounted(filled: Path, record) -> None:
    with RecordDatabase(filled) as database:
        before = list(database)
        with database.writing() as connection:  # the pool has one connection, and this stays with it
            connection.exec_driver_sql("PRAGMA max_page_count=1")  # in effect the pages that the file has
        with pytest.raises(RecordsError, match="the disk is full"):
            database.put_many(record(f"new {i}") for i in range(1000))
        assert list(database) == before
    with RecordDatabase(filled) as database:
        database.put(record("new"))


def test_a_limit_on_the_size_of_files_loses_nothing(tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))"
    free = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))"
    printed = run(FILL.replace("LIMIT", limit).replace("FREE", free), str(tmp_path / "records.db"))
    assert "records.db" in printed and "size limit" in printed and printed.count("\n") == 1


# Nothing may be written

LOOK_AND_PUT = """
warm = RecordDatabase(path)  # everything is imported before the process gives up its rights
key, new = next(iter(warm)).key, record(10**6)
warm.close()
DROP
database = RecordDatabase(path)
assert database.get(key) is not None and len(database) == 200
for write in (lambda: database.put(new), database.require_writable):
    try:
        write()
    except RecordsError as error:
        print(error)
    else:
        raise SystemExit("a write went through")
assert len(database) == 200
"""
#: The superuser may write whatever the permissions say: become somebody else.
DROP = "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)"


@pytest.fixture
def public(filled: Path) -> Iterator[Path]:
    """The filled database in a folder that every user can reach (pytest's own folders are private)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copy(filled, folder / "records.db")
    yield folder / "records.db"
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("what", ["file", "folder", "both"])
def test_without_the_right_to_write_look_ups_work_and_puts_are_errors(public: Path, what: str) -> None:
    public.chmod(0o444 if what in ("file", "both") else 0o666)
    public.parent.chmod(0o555 if what in ("folder", "both") else 0o777)
    printed = run(LOOK_AND_PUT.replace("DROP", DROP), str(public)).splitlines()
    assert len(printed) == 2
    for line in printed:
        assert "records.db cannot be" in line and "writable" in line and "--records" in line


def test_a_disk_that_is_mounted_read_only_can_be_looked_up(filled: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    prefix = unshared_tmpfs(disk, "4m")
    copy = f"import shutil; shutil.copy({str(filled)!r}, path)\n"
    drop = f"import subprocess; subprocess.run(['mount', '-o', 'remount,ro', {str(disk)!r}], check=True)"
    printed = run(copy + LOOK_AND_PUT.replace("DROP", drop), str(disk / "records.db"), prefix=prefix).splitlines()
    assert len(printed) == 2 and all("read-only" in line for line in printed)


def test_a_new_database_in_a_folder_without_the_right_to_write_is_an_error(public: Path) -> None:
    public.parent.chmod(0o555)
    code = (
        "RecordDatabase(path).close()\n"
        + DROP
        + """
for new in ("new.db", "deep/new.db"):
    try:
        RecordDatabase(os.path.join(os.path.dirname(path), new))
    except RecordsError as error:
        print(error)
"""
    )
    first, second = run(code, str(public)).splitlines()
    assert "new.db cannot be opened or created" in first
    assert "folder" in second and "deep for the records cannot be created" in second


def test_a_file_that_is_deleted_while_it_is_open_is_noticed(filled: Path, record) -> None:
    with RecordDatabase(filled) as database:
        filled.unlink()
        with pytest.raises(RecordsError, match="moved or deleted"):
            database.put(record("new"))


# Files that are not what they should be


def refused(path: Path, match: str) -> None:
    """Opening is an error of one line, and leaves the file as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(RecordsError, match=match) as caught:
        RecordDatabase(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert before is None or path.read_bytes() == before


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk\n" * 500)
    refused(path, "not a records database")


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE birds (name)")
    connection.commit()
    connection.close()
    refused(path, "another program")


def test_a_database_of_another_schema_version(filled: Path) -> None:
    connection = sqlite3.connect(filled)
    connection.execute("PRAGMA user_version=7")
    connection.close()
    refused(filled, "version 7.*versions 1 and 2.*records export.*--records")


def test_a_folder_and_a_path_through_a_file(filled: Path) -> None:
    refused(filled.parent, "is a folder")
    with pytest.raises(RecordsError, match="cannot be created"):
        RecordDatabase(filled / "deeper" / "records.db")


def test_an_empty_file_becomes_a_database(tmp_path: Path, record) -> None:
    path = tmp_path / "records.db"
    path.touch()
    with RecordDatabase(path) as database:
        database.put(record())
    assert len(structures(path)) == 1


def test_a_torn_database_is_reported_with_what_to_do(filled: Path) -> None:
    os.truncate(filled, filled.stat().st_size * 2 // 3)
    refused(filled, r"damaged \(.+\).*recover.*--records")


def test_no_damaged_page_gives_a_wrong_record(filled: Path) -> None:
    """Overwrite each page in turn: what is read is an error or exactly what was put, and the file is never touched."""
    whole = filled.read_bytes()
    with RecordDatabase(filled) as database:
        put = list(database)
    page = int.from_bytes(whole[16:18], "big")
    errors = 0
    for start in range(0, len(whole), page):
        damaged = whole[:start] + bytes(page) + whole[start + page :]
        filled.write_bytes(damaged)
        try:
            with RecordDatabase(filled) as database:
                assert list(database) == put
        except RecordsError as error:
            errors += 1
            assert "\n" not in str(error)
        assert filled.read_bytes() == damaged
    assert errors > len(whole) // page // 2


def test_a_record_that_was_changed_by_hand_is_not_a_hit(filled: Path, record) -> None:
    connection = sqlite3.connect(filled)
    connection.execute("UPDATE records SET threads = 64 WHERE structure = '5'")
    connection.commit()
    connection.close()
    with RecordDatabase(filled) as database:
        with pytest.raises(RecordsError, match="key was changed"):
            database.get(record(5).key)
        assert database.get(record(6).key) is not None
