"""A benchmark log brings every record back exactly, and says what is wrong with it when it cannot."""

import gzip
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import ImportCounts, Record, RecordDatabase, RecordKey, export_log, import_log, read_log
from collage.runtime.device_info import DeviceInfo


@pytest.fixture
def records(record):
    made = [record(i, Cost.invalid("no ☃") if i % 5 == 0 else Cost(i / 7, i / 7e3, i)) for i in range(40)]
    return [replace(r, timestamp=f"2026-01-01T00:00:{i:02}.000000+00:00") for i, r in enumerate(made)]


@pytest.fixture
def source(database, records):
    database.put_many(records)
    return database


@pytest.fixture
def other(new_place):
    with RecordDatabase(new_place("other.db")) as opened:
        yield opened


def lines(source: RecordDatabase) -> list[str]:
    stream = io.StringIO()
    export_log(source, stream)
    return stream.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_a_round_trip_is_exact_and_importing_again_changes_nothing(source, other, records, tmp_path, name) -> None:
    path = tmp_path / "new folder" / name
    assert export_log(source, path) == 40
    assert import_log(other, path) == ImportCounts(read=40, added=40, known=0)
    assert list(other) == list(source) == records
    assert import_log(other, path) == ImportCounts(read=40, added=0, known=40)
    assert list(other) == records
    assert list(read_log(path)) == records
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_streams_work_as_files_do(source, other, records) -> None:
    stream = io.StringIO()
    assert export_log(source, stream) == 40
    stream.seek(0)
    assert import_log(other, stream).added == 40
    assert list(other) == records


def test_the_log_is_ascii_json_with_a_header(source) -> None:
    head, *rest = lines(source)
    header = json.loads(head)
    assert (header["format"], header["version"], header["records"]) == ("collage-records", 2, 40)
    assert all(line.isascii() and isinstance(json.loads(line), dict) for line in rest)


def test_the_same_records_compress_to_the_same_bytes_but_for_the_header(source, tmp_path) -> None:
    export_log(source, tmp_path / "a.gz")
    export_log(source, tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes()[:10] == (tmp_path / "b.gz").read_bytes()[:10]  # no name, no time
    one, two = (gzip.decompress((tmp_path / name).read_bytes()).splitlines() for name in ("a.gz", "b.gz"))
    assert one[1:] == two[1:]


def test_a_compressed_log_is_known_by_its_content(source, other, tmp_path) -> None:
    export_log(source, tmp_path / "log.gz")
    (tmp_path / "log.gz").rename(tmp_path / "log.jsonl")
    assert import_log(other, tmp_path / "log.jsonl").added == 40


def log_of(*chosen: Record) -> io.StringIO:
    head = '{"format":"collage-records","version":2}\n'
    return io.StringIO("".join([head, *(r.to_json() + "\n" for r in chosen)]))


def test_importing_adds_observations_and_replaces_none(other, record) -> None:
    first = replace(record(cost=Cost(1.0)), timestamp="2026-01-02T00:00:00.000000+00:00", session="a")
    second = replace(record(cost=Cost(2.0)), timestamp="2026-01-01T00:00:00.000000+00:00", session="b")
    other.put(first)
    assert import_log(other, log_of(second)) == ImportCounts(read=1, added=1, known=0)
    assert import_log(other, log_of(first, second, second)) == ImportCounts(read=3, added=0, known=3)
    assert list(other.observations()) == [first, second]
    (found,) = other
    assert found.seconds == 1.5
    assert list(read_log(log_of(first, second, first))) == [found], "training sees what look-ups see"


def test_logs_can_be_concatenated(source, other, records, record, new_place) -> None:
    with RecordDatabase(new_place("third.db")) as third:
        third.put(record("more"))
        joined = io.StringIO("".join(lines(source) + lines(third)))
    counts = import_log(other, joined)
    assert (counts.added, counts.torn) == (41, "")


def test_an_empty_database_makes_a_log_too(other, tmp_path) -> None:
    assert export_log(other, tmp_path / "empty.jsonl") == 0
    assert import_log(other, tmp_path / "empty.jsonl") == ImportCounts(0, 0, 0)


def test_a_log_that_is_torn_anywhere_gives_its_whole_lines(source, records, tmp_path) -> None:
    whole = "".join(lines(source)).encode()
    ends = [m.end() for m in re.finditer(b"\n", whole)]
    path = tmp_path / "torn.jsonl"
    for cut in [*range(ends[0] + 1, ends[0] + 400, 37), *range(ends[3], len(whole), 2999), len(whole) - 2]:
        path.write_bytes(whole[:cut])
        with RecordDatabase(tmp_path / f"{cut}.db") as fresh:
            counts = import_log(fresh, path)
            kept = sum(end <= cut for end in ends) - 1
            assert counts.added == len(fresh) == kept < 40
            assert list(fresh) == records[:kept]
            assert "torn.jsonl" in counts.torn


def test_a_log_that_lost_only_its_last_line_feed_is_whole(source, other, tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines(source)).rstrip("\n"))
    assert import_log(other, path) == ImportCounts(40, 40, 0)


def test_a_log_that_is_torn_between_two_lines_is_noticed(source, other, tmp_path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines(source)[:31]))
    counts = import_log(other, path)
    assert counts.added == 30 and "30 of the 40 records" in counts.torn


def test_a_compressed_log_that_is_torn_gives_what_is_whole(source, records, tmp_path) -> None:
    path = tmp_path / "log.jsonl.gz"
    export_log(source, path)
    whole = path.read_bytes()
    kept = []
    for cut in (len(whole) // 2, len(whole) - 300, len(whole) - 9, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with RecordDatabase(tmp_path / f"{cut}.db") as fresh:
            counts = import_log(fresh, path)
            kept.append(counts.added)
            assert list(fresh) == records[: counts.added]
            assert "breaks off" in counts.torn
    assert 0 < kept[0] < kept[1] < 40
    assert kept[2:] == [40, 40]  # only the checksum at the end is missing


def test_a_torn_end_is_left_out_when_a_log_is_read_for_training(source, records, tmp_path) -> None:
    path, told = tmp_path / "log.jsonl", []
    path.write_text("".join(lines(source))[:-5])
    assert list(read_log(path, told.append)) == records[:-1]
    assert len(told) == 1 and "breaks off" in told[0]
    path.write_text("".join(lines(source)))
    assert list(read_log(path, told.append)) == records
    assert len(told) == 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line[:50] + "\n", "malformed"),
        (lambda line: "garbage\n", "malformed"),
        (lambda line: "[1, 2]\n", "malformed.*not a JSON object"),
        (lambda line: line.replace('"spread":', '"spraed":'), "missing.*spread.*unknown.*spraed"),
        (lambda line: re.sub(r'"seconds":[^,]*', '"seconds":NaN', line), "malformed"),
        (lambda line: re.sub(r'"seconds":[^,]*', '"seconds":"fast"', line), "seconds"),
        (lambda line: re.sub(r'"seconds":[^,]*', '"seconds":-1', line), "not negative"),
        (lambda line: line.replace('"threads":2', '"threads":0'), "threads"),
        (lambda line: line.replace('"kind":"candidate"', '"kind":"other"'), "kind"),
        (lambda line: re.sub(r'"key":{.*?},"label"', '"key":{},"label"', line), "a key has the fields"),
        (lambda line: line.replace('"operators":[', '"operators":[7,'), "operators"),
    ],
)
def test_any_other_malformed_line_is_an_error_with_its_number_and_imports_nothing(
    source, other, tmp_path, damage, message
) -> None:
    log = lines(source)
    assert damage(log[7]) != log[7]
    log[7] = damage(log[7])
    path = tmp_path / "log.jsonl"
    path.write_text("".join(log))
    with pytest.raises(RecordsError, match=f"(?s)log.jsonl.*line 8.*{message}") as caught:
        import_log(other, path)
    assert "\n" not in str(caught.value)
    assert len(other) == 0


def test_a_malformed_last_line_that_is_complete_is_an_error(source, other) -> None:
    log = lines(source)
    with pytest.raises(RecordsError, match="line 41"):
        import_log(other, io.StringIO("".join([*log[:-1], "garbage\n"])))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"milk\n", "not a benchmark log"),
        (b'{"format":"collage-rec', "not a benchmark log"),
        (b'{"format":"other","version":1}\n', "header"),
        (b'{"version":1}\n', "header"),
        (b'{"format":"collage-records","version":3}\n', "version 3.*versions 1 to 2"),
        (b'{"format":"collage-records","version":true}\n', "version True.*versions 1 to 2"),
        (b'{"format":"collage-records","version":1,"records":"many"}\n', "number of records"),
        (b"\x89PNG\xff\xfe\n", "not text"),
        (b"\x1f\x8b damaged", "cannot be read|damaged"),
    ],
)
def test_files_that_are_not_logs(other, tmp_path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RecordsError, match=message) as caught:
        import_log(other, path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert len(other) == 0


def test_a_compressed_log_with_damage_inside_is_an_error(source, other, tmp_path) -> None:
    path = tmp_path / "log.gz"
    export_log(source, path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    path.write_bytes(bytes(content))
    with pytest.raises(RecordsError, match=r"log\.gz"):
        import_log(other, path)
    assert len(other) == 0


def test_missing_files_and_folders(source, other, tmp_path) -> None:
    with pytest.raises(RecordsError, match=r"missing.*No such file"):
        import_log(other, tmp_path / "missing")
    with pytest.raises(RecordsError, match="cannot be read"):
        import_log(other, tmp_path)
    with pytest.raises(RecordsError, match="cannot be written"):
        export_log(source, tmp_path)


def test_an_export_that_fails_leaves_the_earlier_log(source, tmp_path, monkeypatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("earlier")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RecordsError, match="No space left"):
        export_log(source, path)
    assert path.read_text() == "earlier"
    assert not list(tmp_path.glob(".log*"))


@pytest.mark.parametrize("described", [Record, RecordKey, DeviceInfo, ImportCounts])
def test_the_schema_document_names_every_field(described: type) -> None:
    document = (Path(__file__).parents[3] / "docs" / "RECORDS.md").read_text(encoding="utf-8")
    missing = [f.name for f in fields(described) if f.compare and not re.search(rf"\b{f.name}\b", document)]
    assert missing == []


# Logs come from anywhere


HEAD = '{"format":"collage-records","version":2}\n'


def refused(path: Path, match: str) -> None:
    for read in (lambda: list(read_log(path)), lambda: import_log(RecordDatabase(path.with_name("new.db")), path)):
        with pytest.raises(RecordsError, match=match) as caught:
            read()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500 and str(path) in str(caught.value)
    with RecordDatabase(path.with_name("new.db")) as database:
        assert len(database) == 0


@pytest.mark.parametrize(
    ("timestamp", "words"),
    [
        ("2126-01-01T00:00:00.000000+00:00", "2126-01-01, in the future"),
        ("2026-13-45T00:00:00.000000+00:00", "2026-13-45"),
        ("2026-02-30T00:00:00.000000+00:00", "2026-02-30"),
    ],
)
def test_dates_that_cannot_be(record, tmp_path: Path, timestamp: str, words: str) -> None:
    good, bad = record("a"), record("b").to_json()
    bad = bad.replace(json.loads(bad)["timestamp"], timestamp)
    path = tmp_path / "log.jsonl"
    path.write_text(HEAD + good.to_json() + "\n" + bad + "\n")
    refused(path, f"line 3.*{words}")


def test_a_clock_that_was_set_back_reads_every_log_of_before(monkeypatch, record, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(HEAD + replace(record(), timestamp="2026-11-21T00:00:00.000000+00:00").to_json() + "\n")
    monkeypatch.setattr("collage.records.log.now", lambda: "1970-01-01T00:00:00.000000+00:00")
    assert len(list(read_log(path))) == 1


@pytest.mark.parametrize("depth", [100, 900, 200_000])
def test_nesting_that_is_too_deep(record, tmp_path: Path, depth: int) -> None:
    line = replace(record(), description={"x": 0}).to_json()
    path = tmp_path / "log.jsonl"
    path.write_text(HEAD + line.replace('{"x":0}', '{"x":' + "[" * depth + "]" * depth + "}") + "\n")
    refused(path, r"line 2.*(deeper than 64 levels|nested too deeply)")


def test_a_description_that_is_nested_too_deeply_is_not_stored(database, record) -> None:
    deep: object = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RecordsError, match="deeper than 64 levels"):
        database.put(replace(record(), description={"x": deep}))


def test_compressed_nothing_is_refused_before_it_fills_the_disk_or_the_memory(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("collage.records.log.MAX_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b"\n" * (1 << 24)))
    refused(path, "cannot be read: it unpacks to far more than a log has")


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("collage.records.log.MAX_LINE", 1 << 16)
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(HEAD.encode() + b'"' + b"x" * (1 << 20)))
    refused(path, "line 2 is longer")
