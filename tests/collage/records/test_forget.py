"""Observations are forgotten by what they are; what else is known of the same thing stays, and counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collage.cost.cost import Cost
from collage.records import Forgotten, Record, RecordDatabase, Selection

Make = Callable[..., Record]


def day(record: Record, day: int, session: str = "a") -> Record:
    return replace(record, timestamp=f"2026-01-{day:02}T00:00:00.000000+00:00", session=session)


@pytest.fixture
def filled(database: RecordDatabase, record: Make) -> RecordDatabase:
    no = Cost.invalid("no space left on device")
    database.put_many(
        [
            day(record("a", Cost(1.0)), 1),
            day(record("a", Cost(3.0)), 9, "b"),
            day(record("b", no), 2),
            day(record("b", Cost(2.0)), 8, "b"),
            day(record("c", no, backend="tvm"), 3),
            day(record("p", kind="plan", backend="openvino+tvm"), 4),
            day(record("t", kind="transition", backend="tvm->openvino"), 5),
            day(record("other", backend="tvm-cuda", device="gpu"), 6),
        ]
    )
    return database


@pytest.mark.parametrize(
    ("selection", "gone"),
    [
        (Selection(status="invalid"), {"b2", "c3"}),
        (Selection(backend="tvm"), {"c3", "p4", "t5"}),
        (Selection(backend="openvino", kind="candidate"), {"a1", "a9", "b2", "b8"}),
        (Selection(backend="TVM"), set()),
        (Selection(kind="plan"), {"p4"}),
        (Selection(device="gpu"), {"other6"}),
        (Selection(before="2026-01-03T00:00:00.000000+00:00"), {"a1", "b2"}),
        (Selection(after="2026-01-08T00:00:00.000000+00:00"), {"a9", "b8"}),
        (Selection(), {"a1", "a9", "b2", "b8", "c3", "p4", "t5", "other6"}),
    ],
)
def test_what_is_meant_is_forgotten_and_nothing_else(
    filled: RecordDatabase, selection: Selection, gone: set[str]
) -> None:
    def names() -> set[str]:
        return {f"{o.key.structure}{int(o.timestamp[8:10])}" for o in filled.observations()}

    before = names()
    announced = filled.forget(selection, dry_run=True)
    assert names() == before, "a dry run removes nothing"
    assert filled.forget(selection) == announced
    assert before - names() == gone and announced.observations == len(gone)
    assert {r.key.structure for r in filled} == {name.rstrip("0123456789") for name in names()}


def test_the_rest_of_a_key_is_aggregated_anew(filled: RecordDatabase, record: Make) -> None:
    a, b = record("a").key, record("b").key
    assert filled.costs([a])[a].seconds == 2.0
    counts = filled.forget(Selection(after="2026-01-08T00:00:00.000000+00:00"))
    assert counts == Forgotten(observations=2, records=0, by_backend={"openvino": 2}, by_status={"ok": 2})
    assert filled.costs([a])[a].seconds == 1.0 and filled.costs([b])[b].is_invalid
    assert filled.forget(Selection(status="invalid")).records == 2
    assert filled.costs([b]) == {} and filled.get(b) is None


def test_what_was_condemned_is_measured_again(database: RecordDatabase, record: Make) -> None:
    condemned = record("m", Cost.invalid("no space left on device"))
    database.put(condemned)
    database.forget(Selection(status="invalid"))
    database.put(ran := record("m", Cost(1.0)))
    assert list(database.observations()) == [ran]


def test_descriptions_that_nothing_needs_are_gone(filled: RecordDatabase) -> None:
    filled.forget(Selection(device="gpu"))
    assert all(o.description for o in filled.observations())
    filled.forget(Selection())
    with filled.writing() as connection:
        counts = [connection.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar() for t in ("texts", "records")]
    assert counts == [0, 0]
