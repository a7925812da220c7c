"""Half an hour on a borrowed machine: limits hold, decisions follow what was found, and the archive is always whole."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import tarfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks import gpu_session
from benchmarks.gpu import evidence
from benchmarks.gpu.agenda import Settings, Task, agenda, command_of, settings, wrong_backends
from benchmarks.gpu.evidence import NAME, archive
from benchmarks.gpu_session import Session, follow

pytestmark = pytest.mark.emulation


def shell(name: str, script: str, most_s: float = 20.0, least_s: float = 0.0) -> Task:
    return Task(name, ("sh", "-c", script), most_s, least_s)


def names_in(path: Path) -> dict[str, str]:
    with tarfile.open(path) as packed:
        streams = {entry.name: packed.extractfile(entry) for entry in packed.getmembers()}
        return {name: stream.read().decode() for name, stream in streams.items() if stream is not None}


def run(state: Path, tasks: Sequence[Task], interval_s: float = 0.05) -> None:
    Session(state, tasks, 60.0, interval_s).run()


def test_what_hangs_is_ended_with_its_children_and_the_next_one_runs(tmp_path: Path) -> None:
    hanging = shell("hanging", "sleep 600 & echo $! > {state}/child; wait", most_s=1.0)
    run(tmp_path, [hanging, shell("failing", "echo no; exit 3"), shell("fine", "echo yes")])
    results = {name: row["result"] for name, row in json.loads((tmp_path / "tasks.json").read_text()).items()}
    assert results == {"hanging": "ended at its limit", "failing": "ended with status 3", "fine": "done"}
    found = names_in(tmp_path / NAME)
    assert found["log/fine.log"] == "yes\n" and found["log/failing.log"] == "no\n"
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_nothing_is_begun_without_time_and_what_is_done_stays_done(tmp_path: Path) -> None:
    run(tmp_path, [shell("one", "echo 1 >> {state}/count"), shell("long", "true", least_s=1000.0)])
    results = json.loads((tmp_path / "tasks.json").read_text())
    assert results["long"]["result"] == "no time was left"
    run(tmp_path, [shell("one", "echo 1 >> {state}/count"), shell("two", "echo 2 >> {state}/count")])
    assert (tmp_path / "count").read_text().split() == ["1", "2"]
    (tmp_path / "begun.json").write_text(json.dumps({"time": time.time() - 59}))
    run(tmp_path, [shell("three", "echo 3 >> {state}/count", least_s=1.0)])
    assert (tmp_path / "count").read_text().split() == ["1", "2"], "the session began a minute ago"


def test_the_archive_is_whole_whenever_the_session_is_killed(tmp_path: Path) -> None:
    """And has all that finished tasks had found, one interval before."""
    tasks = [shell(str(i), f"echo {i} > {{state}}/found{i}.json") for i in range(40)]
    draw = random.Random(0)
    for number in range(6):
        state = tmp_path / str(number)
        process = get_context("fork").Process(target=run, args=(state, tasks))
        process.start()
        while not (state / NAME).exists():
            time.sleep(0.01)
        time.sleep(draw.random())
        process.kill()
        process.join()
        finished = [
            name for name, row in json.loads((state / "tasks.json").read_text()).items() if row["result"] == "done"
        ]
        found = names_in(state / NAME)
        kept = json.loads(found["tasks.json"])
        assert len(kept) >= len(finished) - 1
        assert all(found[f"found{name}.json"] == f"{name}\n" for name in kept)


def test_what_counts_most_is_kept_where_not_everything_fits(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_text("{}")
    (tmp_path / "large.csv").write_bytes(os.urandom(4 << 20))
    (tmp_path / "rows.jsonl").write_bytes(os.urandom(100_000))
    archive(tmp_path, tmp_path / NAME, most=1 << 20)
    assert (tmp_path / NAME).stat().st_size < 1 << 20
    with tarfile.open(tmp_path / NAME) as packed:
        assert packed.getnames() == ["tasks.json", "rows.jsonl"]


def spill(database: Path) -> sqlite3.Connection:
    """Begin a transaction of which a part is in the file already: it is more than the cache holds."""
    writing = sqlite3.connect(database, isolation_level=None)
    writing.executescript("PRAGMA cache_size = 2; CREATE TABLE t (x); INSERT INTO t VALUES (1); BEGIN")
    writing.executemany("INSERT INTO t VALUES (randomblob(?))", [(4000,)] * 100)
    return writing


def spill_and_end(database: Path) -> None:
    spill(database)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_database_is_packed_as_its_last_transaction_left_it(tmp_path: Path) -> None:
    database = tmp_path / "state" / "records.db"
    database.parent.mkdir()
    process = get_context("fork").Process(target=spill_and_end, args=(database,))
    process.start()
    process.join()
    assert database.with_name("records.db-journal").exists(), "the transaction was cut off"
    archive(tmp_path, tmp_path / NAME)
    with tarfile.open(tmp_path / NAME) as packed:
        packed.extract("state/records.db", tmp_path / "there", filter="data")
    with closing(sqlite3.connect(tmp_path / "there" / "state" / "records.db")) as found:
        assert found.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_nobody_waits_for_a_transaction_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_PATIENCE_S", 0.1)
    (tmp_path / "state").mkdir()
    (tmp_path / "tasks.json").write_text("{}")
    with closing(spill(tmp_path / "state" / "records.db")):
        archive(tmp_path, tmp_path / NAME)
    assert set(names_in(tmp_path / NAME)) == {"tasks.json"}


def test_of_a_log_the_end_is_packed(tmp_path: Path) -> None:
    (tmp_path / "session.log").write_text("x" * (3 << 20) + "the end")
    archive(tmp_path, tmp_path / NAME)
    log = names_in(tmp_path / NAME)["session.log"]
    assert log.endswith("the end") and len(log) == 2 << 20


def test_a_session_that_is_killed_takes_its_task_along(tmp_path: Path) -> None:
    """Otherwise two sessions would work on the same files, and on the same device."""
    task = shell("long", "echo $$ > {state}/child; exec sleep 600", most_s=600.0)
    process = get_context("fork").Process(target=run, args=(tmp_path, [task]))
    process.start()
    child = tmp_path / "child"
    while not child.exists() or not child.read_text():
        time.sleep(0.01)
    process.kill()
    process.join()
    number = child.read_text().strip()
    for _ in range(1000):
        if not alive(number):
            break
        time.sleep(0.01)
    assert not alive(number)
    run(tmp_path, [shell("long", "true")])
    assert json.loads((tmp_path / "tasks.json").read_text())["long"]["result"] == "done"


def alive(number: str) -> bool:
    """Whether a process is there, and has not ended."""
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z"
    return False


def test_what_had_no_time_is_taken_up_when_there_is_more(tmp_path: Path) -> None:
    short = Session(tmp_path, [shell("one", "true", least_s=20.0)], 30.0)
    short.run()
    assert json.loads((tmp_path / "tasks.json").read_text())["one"]["result"] == "no time was left"
    run(tmp_path, [shell("one", "true", least_s=20.0)])
    assert json.loads((tmp_path / "tasks.json").read_text())["one"]["result"] == "done"


def test_a_row_that_cannot_be_read_costs_the_summary_only(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "rows.jsonl").write_text('{"kind": "tune"}\n')
    run(tmp_path, [shell("one", "true")])
    assert "state/rows.jsonl" in names_in(tmp_path / NAME)


CONTACT = {
    "nvrtc": {"seconds": 1.0, "error": 0.0},
    "nvcc": {"seconds": 9.0, "error": 0.0},
    "backends": {"tvm-cuda": "", "cublas": "", "cudnn": "", "tensorrt": "tensorrt is not installed"},
}
RIGHT = "cublas  product float16: right, 12.3 us  [matmul]\ntvm-cuda  product float16: right, 20.0 us  [matmul]\n"


def decided(state: Path, contact: object, lines: str = RIGHT) -> Settings:
    (state / "log").mkdir(exist_ok=True)
    (state / "contact.json").write_text(json.dumps(contact))
    (state / "log" / "numerics-half.log").write_text(lines)
    return settings(state)


def test_nvcc_compiles_where_nvrtc_fails_and_it_does_not(tmp_path: Path) -> None:
    assert decided(tmp_path, CONTACT) == Settings()
    failing = {**CONTACT, "nvrtc": {"failed": "RuntimeError: no header"}}
    found = decided(tmp_path, failing)
    assert found.environment == {"TVM_CUDA_COMPILE_MODE": "nvcc"} and "no header" in found.reasons[0]
    assert not decided(tmp_path, {**failing, "nvcc": {"failed": "no nvcc"}}).environment
    assert settings(tmp_path / "nothing") == Settings()


def test_a_backend_that_is_wrong_more_often_than_right_is_left_out(tmp_path: Path) -> None:
    wrong = "cudnn  bottleneck float16: BAD 0.3 off  [conv]\ncudnn  stem float16: right, 3.0 us  [conv]\n"
    assert not wrong_backends(RIGHT + wrong)
    wrong += "cudnn  volume float16: NOT BUILT no plan  [conv]\n"
    found = decided(tmp_path, CONTACT, RIGHT + wrong)
    assert found.backends == ("tvm-cuda", "cublas") and "1 of 3" in found.reasons[0]
    crashed = decided(tmp_path, CONTACT, RIGHT + "cublas  the process ended with status -11\n")
    assert crashed.backends == ("tvm-cuda", "cudnn")
    (tune,) = [task for task in agenda() if task.name == "tune-bert_base-float16"]
    assert command_of(tune, tmp_path, found)[-3:] == ["--backends", "tvm-cuda", "cublas"]
    (contact,) = [task for task in agenda() if task.name == "contact"]
    assert "--backends" not in command_of(contact, tmp_path, found) and str(tmp_path) in command_of(
        contact, tmp_path, found
    )


def test_every_tune_is_followed_by_its_race_and_all_limits_fit_the_session() -> None:
    tasks = agenda()
    names = [task.name for task in tasks]
    for name in names:
        if name.startswith("tune-"):
            assert names[names.index(name) + 1] == "race-" + name.removeprefix("tune-")
    first = [task for task in tasks if "float32" not in task.name and task.name != "rest"]
    assert sum(task.most_s for task in first) <= 28 * 60
    assert all(task.least_s <= task.most_s for task in tasks)


def test_a_call_that_ends_before_the_session_leaves_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, out = tmp_path / "state", tmp_path / "out"
    run(state, [shell("one", "echo 1 > {state}/found1.json")])
    (state / "session.log").write_text("one: done\n")
    monkeypatch.setattr(gpu_session, "running", lambda state: True)
    assert not follow(state, out, time.time() - 1)
    assert names_in(out / NAME)["found1.json"] == "1\n" and "| one | done |" in (out / "summary.md").read_text()
    monkeypatch.setattr(gpu_session, "running", lambda state: False)
    assert follow(state, out, time.time() + 60)


def test_a_shorter_session_has_only_the_tasks_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(Session, "run", lambda self: ran.append([task.name for task in self.tasks]))
    options = ["--work", "--state", str(tmp_path), "--tasks"]
    gpu_session.main([*options, "race-bert_base-float16", "tune-bert_base-float16"])
    assert ran == [["tune-bert_base-float16", "race-bert_base-float16"]]
    with pytest.raises(SystemExit) as ended:
        gpu_session.main([*options, "coffee"])
    assert ended.value.code == 2 and "there is no task coffee: contact, " in capsys.readouterr().err
