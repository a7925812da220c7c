"""What the page of a cost model says, and that `collage train` writes it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from collage.cost.estimator import ErrorReport, ErrorRow
from collage.report.html import write_sections
from collage.report.training import error_lines, headline, sections
from tests.collage.cli.conftest import Command, collage_command  # noqa: F401
from tests.collage.report.test_html import EVIL, Page
from tests.collage.report.trained import errors

LOG = Path(__file__).parents[2] / "estimators" / "data" / "records.jsonl.gz"


def test_the_first_sentences_are_the_errors() -> None:
    first, second, third = headline(errors())
    assert "off by 12.5%" in first and "24 records in 3 groups" in second and third.startswith("75.0%")
    assert "90% are promised" in third


def test_errors_are_told_of_backends_and_of_networks() -> None:
    found = {section["id"]: section for section in sections(errors(), ("tvm", "openvino", "onnxruntime"))}
    assert list(found) == ["backends", "networks", "scatter", "calibration", "unseen"]
    openvino = next(row for row in found["backends"]["tables"][0]["rows"] if row[0] == "openvino")
    assert openvino[1:4] == ["12", "12.5%", "1.050"] and openvino[5] == "75.0%"
    assert [row[1] for row in found["networks"]["tables"][0]["rows"]] == ["8", "8", "8"]
    (drawn,) = found["scatter"]["charts"]
    assert len(drawn["points"]) == 24
    assert drawn["points"][0][:4] == (0.1, 0.1, 0.083333, 0.12)
    worst = found["scatter"]["tables"][0]["rows"][0]
    assert worst[4] == "1.3"
    assert found["calibration"]["charts"][0]["lines"][0]["points"][0] == (0.5, 0.45)


def test_it_says_what_was_never_seen() -> None:
    unseen = sections(errors(), ("tvm", "openvino", "onnxruntime"))[-1]
    assert "no records: onnxruntime." in unseen["text"][0]
    assert ["any backend", "2", "conv3d, conv2d+relu"] in unseen["tables"][1]["rows"]
    assert unseen["tables"][0]["rows"][0][:2] == ["openvino", "12"]


def test_of_many_records_some_are_drawn() -> None:
    chosen = next(s for s in sections(errors(200, 8), ()) if s["id"] == "scatter")
    assert len(chosen["charts"][0]["points"]) == 1200 and "1,200 of 1,600 records are drawn" in chosen["text"][0]


def test_a_model_that_says_its_errors_only_has_a_page_too() -> None:
    bare = ErrorReport((ErrorRow("all", 9, 0.1, 1.0, 1.0, math.nan, 0.9),), 9)
    assert [s["id"] for s in sections(bare, ("tvm",))] == ["backends", "unseen"]
    assert "promised" not in headline(bare)[2] and error_lines(bare)[1].split()[5] == "-"
    json.dumps(sections(bare, ("tvm",)), allow_nan=False)


def test_records_that_are_left_out_one_by_one_are_no_networks() -> None:
    assert "networks" not in [s["id"] for s in sections(errors(24, 1), ())]


def test_names_are_text(tmp_path: Path) -> None:
    report = errors(label=EVIL)
    write_sections(headline(report), sections(report, ()), tmp_path / "t.html", EVIL, "\n".join(error_lines(report)))
    page = Page((tmp_path / "t.html").read_text())
    assert page.tags.count("script") == 2 and EVIL in json.dumps(page.data, ensure_ascii=False)


def test_the_command_writes_a_page(tmp_path: Path, collage_command: Command) -> None:  # noqa: F811
    ran = collage_command("train", LOG, "-o", tmp_path / "cost.json", "--report", tmp_path / "cost.html")
    assert ran.status == 0 and ran.out.splitlines()[-1] == f"Wrote {tmp_path / 'cost.html'}"
    data = Page((tmp_path / "cost.html").read_text()).data
    assert data["title"] == "cost.json"
    assert [s["id"] for s in data["sections"]] == ["backends", "networks", "scatter", "calibration", "unseen"]
    refused = collage_command("train", LOG, "-o", tmp_path / "same", "--report", tmp_path / "same")
    assert refused.status == 2 and "would overwrite" in refused.err
