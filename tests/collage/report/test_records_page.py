"""What the page of a records database says, and that `collage records report` writes it."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from collage.records import RecordDatabase, export_log
from collage.report.html import write_sections
from collage.report.records_overview import age_of, kind_of_failure, overview
from collage.report.records_page import headline, sections
from tests.collage.cli.conftest import Command, collage_command  # noqa: F401
from tests.collage.report.test_html import EVIL, Page
from tests.collage.report.trained import observations

NOW = datetime(2026, 1, 3, tzinfo=timezone.utc)


def test_the_first_sentences_are_what_there_is() -> None:
    first, second, third = headline(overview(observations(), NOW))
    assert first == "5 records of 9 observations"
    assert second.startswith("Measured from 2026-01-01 10:00") and second.endswith(
        "on 2 known hosts in 2 known sessions"
    )
    assert third.startswith("22.2% of the observations are failures; others disturbed 50.0%")


def test_kinds_backends_and_hosts_are_counted() -> None:
    found = {section["id"]: section for section in sections(overview(observations(), NOW))}
    assert list(found) == ["what", "hosts", "ages", "sessions", "repeated", "failures"]
    kinds, backends = found["what"]["tables"]
    assert kinds["rows"] == [["candidate", "4", "8", "2"], ["transition", "1", "1", "0"]]
    assert backends["rows"] == [["openvino", "6", "0", "0.0%"], ["tvm", "2", "2", "100.0%"]]
    assert ["host0", "a processor", "4", "1", "2"] in found["hosts"]["tables"][0]["rows"]


def test_sessions_say_what_disturbed_them() -> None:
    found = next(s for s in sections(overview(observations(), NOW)) if s["id"] == "sessions")
    disturbed, quiet = (next(row for row in found["tables"][0]["rows"] if row[0] == name * 16) for name in "10")
    assert disturbed[4:] == ["4", "1", "100.0%", "load (4)"] and quiet[6:] == ["0.0%", ""]


def test_the_spread_of_repetitions_is_that_around_their_median() -> None:
    found = next(s for s in sections(overview(observations(), NOW)) if s["id"] == "repeated")
    (row,) = found["tables"][0]["rows"]
    assert row == ["openvino", "3", "3", "6", "1.5%", "1.5%", "33%"], "two of six are inside of their own intervals"
    assert {bar[0] for bar in found["charts"][0]["bars"]} == {"1 to 2%"}


def test_failures_of_one_kind_are_one_row() -> None:
    found = next(s for s in sections(overview(observations(), NOW)) if s["id"] == "failures")
    assert found["tables"][0]["rows"] == [["does not compile", "2", "tvm (2)", "does not compile: error 17 in line 3"]]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("gives wrong numbers: 0.3 instead of 0.2", "gives wrong numbers"),
        ("crashes after 3 runs", "crashes after … runs"),
        ("", "no reason is given"),
        ("\n  \n", "no reason is given"),
    ],
)
def test_kinds_of_failures_have_no_numbers(reason: str, kind: str) -> None:
    assert kind_of_failure(reason) == kind


@pytest.mark.parametrize(
    ("timestamp", "age"),
    [
        ("2026-01-02T12:00:00.000000+00:00", "up to a day"),
        ("2025-12-30T12:00:00.000000+00:00", "up to a week"),
        ("2024-01-01T00:00:00.000000+00:00", "older than a year"),
        ("2026-01-04T00:00:00.000000+00:00", "in the future"),
    ],
)
def test_ages_are_told_in_steps(timestamp: str, age: str) -> None:
    assert age_of(timestamp, NOW) == age


def test_an_empty_database_has_a_page() -> None:
    found = overview([], NOW)
    assert headline(found) == ["0 records of 0 observations"]
    json.dumps(sections(found), allow_nan=False)


def test_reasons_are_text(tmp_path: Path) -> None:
    found = overview(observations(EVIL), NOW)
    write_sections(headline(found), sections(found), tmp_path / "r.html", EVIL)
    page = Page((tmp_path / "r.html").read_text())
    assert page.tags.count("script") == 2 and EVIL in json.dumps(page.data, ensure_ascii=False)


def test_the_command_reads_databases_and_logs(tmp_path: Path, collage_command: Command) -> None:  # noqa: F811
    with RecordDatabase(tmp_path / "r.db") as database:
        database.put_many(observations())
        export_log(database, tmp_path / "r.jsonl.gz")
    asked = ("records", "report", "-o", tmp_path / "page.html")
    pages = []
    for source in ((tmp_path / "r.db",), (tmp_path / "r.jsonl.gz",), ("--records", tmp_path / "r.db")):
        ran = collage_command(*asked, *source)
        assert ran.status == 0 and ran.out.startswith("5 records of 9 observations"), ran.err
        pages.append(Page((tmp_path / "page.html").read_text()).data)
    assert pages[0] == pages[2] and pages[0]["sections"] == pages[1]["sections"]
    assert pages[0]["title"] == "r.db"


def test_a_database_that_is_missing_is_one_line(tmp_path: Path, collage_command: Command) -> None:  # noqa: F811
    ran = collage_command("records", "report", tmp_path / "none.db", "-o", tmp_path / "page.html")
    assert ran.status == 2 and ran.err.count("\n") == 1 and not (tmp_path / "page.html").exists()
    (tmp_path / "r.db").write_bytes(b"")
    ran = collage_command("records", "report", tmp_path / "r.db", "-o", tmp_path / "r.db")
    assert ran.status == 2 and "would overwrite" in ran.err
