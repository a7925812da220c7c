"""Pages of a cost model, of records and of a call's timeline, in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collage.planned.graph import PlannedGraph, PlannedNode
from collage.report.html import write_sections
from collage.report.records_overview import overview
from collage.report.records_page import headline as records_headline
from collage.report.records_page import sections as records_sections
from collage.report.training import headline, sections
from tests.collage.report.conftest import EVIL, SIZES, Open
from tests.collage.report.networks import with_network, with_timeline
from tests.collage.report.trained import errors, observations

pytestmark = pytest.mark.browser


def _training(path: Path, label: str = "conv2d+relu") -> Path:
    found = errors(networks=12, label=label)
    write_sections(headline(found), sections(found, ("tvm", "openvino", label)), path, label)
    return path


def _records(path: Path, reason: str = "does not compile: error 17") -> Path:
    found = overview(observations(reason))
    write_sections(records_headline(found), records_sections(found), path, reason)
    return path


def _unfold(page: Any) -> None:
    for fold in page.locator("details > summary").all():
        fold.click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_are_no_wider_than_the_window(
    open_file: Open, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    long = "averyveryverylongname" + "_and_more" * 40
    for path in (_training(tmp_path / "t.html", long), _records(tmp_path / "r.html", long)):
        page = open_file(path, size, scheme)
        page.locator(".chart svg").first.wait_for()
        _unfold(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], path.name


def test_a_model_shows_its_errors_its_calibration_and_what_it_never_saw(open_file: Open, tmp_path: Path) -> None:
    page = open_file(_training(tmp_path / "t.html"))
    for section in ("backends", "networks", "scatter", "calibration"):
        page.locator(f"#{section} .chart svg").wait_for()
        assert page.locator(f"#{section} .chart").count() == 1, section
    assert page.locator("#scatter .chart svg").locator("path").count() > 96
    assert "conv2d+relu" in page.locator("#unseen").inner_text()
    assert page.locator("#networks details").get_attribute("open") is None
    page.locator("#networks summary").click()
    assert page.locator("#networks tbody tr").count() == 12


def test_records_show_counts_sessions_repetitions_and_failures(open_file: Open, tmp_path: Path) -> None:
    page = open_file(_records(tmp_path / "r.html"))
    for section in ("what", "ages", "sessions", "repeated", "failures"):
        page.locator(f"#{section} .chart svg").wait_for()
    assert "5 records of 9 observations" in page.locator(".headline").inner_text()
    page.locator("#failures summary").click()
    assert "does not compile: error 17" in page.locator("#failures table").inner_text()


def test_labels_cannot_run_script(open_file: Open, tmp_path: Path) -> None:
    for path in (_training(tmp_path / "t.html", EVIL), _records(tmp_path / "r.html", EVIL)):
        page = open_file(path)
        page.locator(".chart svg").first.wait_for()
        _unfold(page)
        assert page.locator("h1").inner_text() == EVIL and page.locator("main").inner_text().count("onerror") > 0
        assert page.evaluate("window.ran") is None and page.locator("img").count() == 0


@pytest.mark.parametrize("size", SIZES)
def test_a_call_shows_gaps_by_name_and_the_estimators_errors(show: Open, size: tuple[int, int]) -> None:
    page = show(with_timeline(with_network(3)), size=size)
    page.locator("#calls .chart svg").wait_for()
    page.locator("#estimator .chart svg").wait_for()
    drawn = page.locator("#calls .chart").inner_text()
    assert "gaps" in drawn and "virtual machine" in drawn and "before and after" in drawn
    page.locator("#calls summary").click()
    assert "between 1 (openvino) and 2 (tvm)" in page.locator("#calls table").inner_text()
    assert "One thread" in page.locator("#calls").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]


def test_a_call_without_starts_says_so(show: Open) -> None:
    page = show(with_network(3))
    assert "not their starts" in page.locator("#calls").inner_text()


@pytest.mark.parametrize("operators", [3, 176])
def test_how_many_operators_a_partition_has_is_said_once(show: Open, operators: int) -> None:
    ours = with_network(3)
    names = [f"relax.op{number % 80}" for number in range(operators)]
    first = replace(ours.partitions[0], nodes=tuple(range(operators)), operators=tuple(names))
    page = show(replace(ours, partitions=(first,), graph=PlannedGraph(tuple(map(PlannedNode, names)))))
    page.locator("#partitions button").first.click()
    said = page.locator(".panel dd").first.inner_text()
    assert said.startswith("3: op0+op1+op2" if operators == 3 else "176: op0") and said.count(str(operators)) == 1


def test_pictures_are_taken_into_a_folder_beside_us(tmp_path: Path) -> None:
    """In a process of its own: Playwright's browser of the other tests runs in this one."""
    folder = tmp_path / "taken"
    folder.mkdir()
    (folder / "page.html").write_text("<p>a page</p>")
    program = (
        "from tests.collage.report import pictures\n"
        "pictures.pages = lambda folder: iter([('page', folder / 'page.html')])\n"
        "pictures.main()"
    )
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", program, "-o", "taken"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": root}, check=True)
    assert {path.name for path in folder.glob("*.png")} == {"page-1280.png", "page-390.png"}
