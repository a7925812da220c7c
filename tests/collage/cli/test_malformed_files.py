"""Files from anywhere: what cannot be is one clear line and exit status 2, and nothing is taken from it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.records import Record, RecordDatabase
from tests.collage.cli.conftest import Command, Ran, dense
from tests.collage.records.conftest import make_record

HEAD = '{"format":"collage-records","version":2}\n'
FUTURE = "2126-01-01T00:00:00.000000+00:00"
ABSURD = "2026-13-45T00:00:00.000000+00:00"
DEEP = "[" * 100_000 + "]" * 100_000


def refused(ran: Ran, *words: str) -> None:
    """One line of a readable length, status 2, and it says these words."""
    assert ran.status == 2, ran
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ") and "bug" not in line and len(line) < 500
    for word in words:
        assert word in line, line


def dated(timestamp: str) -> str:
    record = make_record()
    return HEAD + record.to_json().replace(record.timestamp, timestamp) + "\n"


def nested() -> str:
    return HEAD + make_record().to_json().replace('"description":{', '"description":{"x":' + DEEP + ",") + "\n"


@pytest.mark.parametrize("command", ["import", "train"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lambda: dated(FUTURE).encode(), "line 2: it was measured on 2126-01-01, in the future"),
        (lambda: dated(ABSURD).encode(), "line 2: a timestamp reads like"),
        (lambda: nested().encode(), "line 2 is malformed (it is nested too deeply)"),
        (lambda: gzip.compress(HEAD.encode() + bytes(1 << 21)), "line 2 is longer"),
        (lambda: gzip.compress(HEAD.encode() + b"\n" * (1 << 23)), "unpacks to far more"),
    ],
    ids=["future", "month", "deep", "line", "bomb"],
)
def test_a_log(
    command: str,
    content: Callable[[], bytes],
    words: str,
    collage_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collage.records.log.MAX_LINE", 1 << 20)
    monkeypatch.setattr("collage.records.log.MAX_UNPACKED", 1 << 22)
    log, made = tmp_path / "log.jsonl", tmp_path / "made"
    log.write_bytes(content())
    if command == "import":
        refused(collage_command("records", "import", log, "--records", made), str(log), words)
        with RecordDatabase(made) as database:
            assert len(database) == 0
    else:
        refused(collage_command("train", log, "-o", made), str(log), words)
        assert not made.exists()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """One thing measured in two sessions, and another one that failed."""
    path = tmp_path / "records.db"
    with RecordDatabase(path) as opened:
        opened.put_many([replace(make_record("a", Cost(t)), session=s) for t, s in ((1.0, "1"), (3.0, "2"))])
        opened.put(make_record("b", Cost.invalid("no space left"), backend="tvm"))
    return path


def test_a_database_with_an_absurd_month(database: Path, collage_command: Command) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE observations SET timestamp = ? WHERE session = '2'", [ABSURD])
    refused(collage_command("records", "list", "--records", database), str(database), "damaged record")


def test_a_database_of_before_the_clock_was_set_back_is_read(database: Path, collage_command: Command) -> None:
    with RecordDatabase(database) as opened:
        opened.put(replace(make_record("c"), timestamp=FUTURE))
    ran = collage_command("records", "stats", "--records", database)
    assert ran.status == 0 and "in the future: the clock was set back" in ran.out
    assert len(collage_command("records", "list", "--records", database).out.splitlines()) == 3


def test_a_plan_that_is_nested_too_deeply(collage_command: Command, tmp_path: Path) -> None:
    plan, model = tmp_path / "plan.json", dense(tmp_path / "m.onnx")
    for depth in (900, 100_000):
        plan.write_text('{"format":"collage-plan","version":2,"x":' + "[" * depth + "]" * depth + "}")
        refused(collage_command("report", plan, model), "plan.json")


def test_a_cost_model(collage_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("estimators.cost_model.file.MAX_BYTES", 1 << 20)
    log, model = tmp_path / "log.jsonl", tmp_path / "cost.json.gz"
    log.write_text(HEAD + make_record().to_json() + "\n")
    for content, words in ((b" " * (1 << 22), "more than"), (b'{"device_info":{"x":' + DEEP.encode(), "no cost model")):
        model.write_bytes(gzip.compress(content))
        ran = collage_command("train", log, "--calibrate", model, "-o", tmp_path / "new.json")
        refused(ran, "cost.json.gz", words)


def listed(records: Path) -> list[Record]:
    with RecordDatabase(records) as database:
        return list(database)


def test_forgetting_says_what_goes_and_what_is_left(database: Path, collage_command: Command) -> None:
    def forget(*options: str) -> Ran:
        return collage_command("records", "forget", "--records", database, *options)

    before = database.read_bytes()
    announced = forget("--status", "invalid", "--dry-run")
    assert "would forget 1 observations; nothing else is known of 1 of" in announced.out
    assert database.read_bytes() == before
    assert forget("--older-than", "1h").out.startswith(f"{database}: forgot 0 ")
    done = forget("--status", "invalid", "--backend", "tvm", "--kind", "candidate", "--newer-than", "1h")
    assert done.status == 0 and "forgot 1 observations" in done.out and "tvm" in done.out
    assert [(r.key.structure, r.seconds) for r in listed(database)] == [("a", 2.0)]
    assert "forgot 2 observations" in forget("--all").out and not listed(database)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ([], "--status"),
        (["--all", "--status", "ok"], "--all"),
        (["--older-than", "yesterday"], "--older-than"),
        (["--newer-than", "-3d"], "--newer-than"),
        (["--status", "good"], "--status"),
        (["--kind", "network"], "--kind"),
    ],
)
def test_forgetting_without_saying_what(
    options: list[str], word: str, database: Path, collage_command: Command
) -> None:
    before = json.dumps([r.to_json() for r in listed(database)])
    refused(collage_command("records", "forget", "--records", database, *options), word)
    assert json.dumps([r.to_json() for r in listed(database)]) == before
