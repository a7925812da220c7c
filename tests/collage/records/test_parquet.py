"""A log as a table says what it says as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collage.cost.cost import Cost
from collage.errors import RecordsError
from collage.records import Record, RecordDatabase, export_log, import_log, read_log, read_observations

pytestmark = pytest.mark.scale
Make = Callable[..., Record]


@pytest.fixture
def records(record: Make) -> list[Record]:
    made = [record(i, Cost.invalid("no ☃ \0 \\") if i % 5 == 0 else Cost(i / 7, i / 7e3, i)) for i in range(40)]
    made[3] = replace(made[3], description=None, device=None, conditions={"load": 0.1}, timings=(), operators=())
    return made


@pytest.fixture
def table(tmp_path: Path, records: list[Record]) -> Path:
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put_many(records)
        assert export_log(database, tmp_path / "log.parquet") == len(records)
        export_log(database, tmp_path / "log.jsonl")
    return tmp_path / "log.parquet"


def test_a_round_trip_is_exact_and_importing_again_changes_nothing(
    table: Path, records: list[Record], tmp_path: Path
) -> None:
    with RecordDatabase(tmp_path / "other.db") as other:
        assert (counts := import_log(other, table)).added == 40 and counts.torn == ""
        assert list(other.observations()) == records
        assert import_log(other, table).known == import_log(other, tmp_path / "log.jsonl").known == 40
    assert list(read_log(table)) == list(read_observations(table)) == records


def test_other_programs_read_it(table: Path, records: list[Record]) -> None:
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(table).to_pylist()
    assert [row["seconds"] for row in rows] == [r.seconds for r in records]
    assert [json.loads(row["versions"]) for row in rows] == [r.versions for r in records]


def rewritten(table: Path, **changed: list[Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    found = pyarrow.parquet.read_table(table)
    for name, values in changed.items():
        column = found.schema.get_field_index(name)
        found = found.set_column(column, found.schema.field(name), pyarrow.array(values, found.schema.field(name).type))
    pyarrow.parquet.write_table(found, table)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("timestamp", "2099-01-01T00:00:00.000000+00:00", "row 8: .*in the future"),
        ("status", "fine", "row 8: .*status"),
        ("protocol", "{", "damaged"),
        ("seconds", -1.0, "row 8"),
        ("threads", 0, "row 8"),
    ],
)
def test_what_no_observation_says_is_refused(table: Path, tmp_path: Path, name: str, value: Any, said: str) -> None:
    import pyarrow.parquet

    values = pyarrow.parquet.read_table(table)[name].to_pylist()
    values[7] = value
    rewritten(table, **{name: values})
    with RecordDatabase(tmp_path / "other.db") as other:
        with pytest.raises(RecordsError, match=said) as caught:
            import_log(other, table)
        assert len(other) == 0 and "\n" not in str(caught.value)


def test_damaged_tables_and_tables_of_others_are_one_line(table: Path, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    whole = table.read_bytes()
    torn, birds = tmp_path / "torn.parquet", tmp_path / "birds.parquet"
    torn.write_bytes(whole[: len(whole) // 2])
    pyarrow.parquet.write_table(pyarrow.table({"birds": ["wren"]}), birds)
    for path, said in ((torn, "damaged"), (birds, "not a benchmark log")):
        with pytest.raises(RecordsError, match=said) as caught:
            list(read_log(path))
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
