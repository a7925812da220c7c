"""The report as a web page: whole, self-contained, and names in it are data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from collage.errors import CollageError
from collage.report.html import json_in_html, to_html, write_html
from collage.report.notebook import to_fragment
from tests.collage.report.networks import with_network
from tests.collage.report.plans import plan
from tests.collage.report.test_summary import CONTESTANTS

EVIL = "</script><script>alert(1)</script><!--<b>"
_VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and collects what would be fetched, the text, and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.policy = self.words = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset")]
        if dict(attrs).get("http-equiv"):
            self.policy = dict(attrs)["content"] or ""
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.words += data

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0])


def test_the_page_holds_the_plan_as_data_and_its_summary_for_browsers_without_scripts() -> None:
    page = Page(to_html(with_network(), "resnet50.onnx"))
    assert page.data["title"] == "resnet50.onnx"
    (shown,) = page.data["plans"]
    assert shown["partitions"][0]["backend"] == "openvino" and len(shown["nodes"]) == 15
    assert "collage ships: the fastest" in page.words and "conv2d+add+relu" in page.words


def test_the_page_fetches_nothing_and_lets_its_own_script_run_only() -> None:
    page = Page(to_html(plan(CONTESTANTS), "resnet50.onnx"))
    assert not page.fetched and page.tags.count("script") == 2
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.policy and "default-src 'none'" in page.policy
    assert "unsafe-eval" not in page.policy


def test_names_are_text_not_markup() -> None:
    page = Page(to_html(with_network(name=EVIL, notes=(EVIL,)), EVIL))
    assert page.tags.count("script") == 2 and "b" not in page.tags
    assert page.data["title"] == EVIL and page.data["plans"][0]["notes"] == [EVIL]
    assert "<" not in page.scripts[0]
    fragment = Page(to_fragment(plan(notes=(EVIL,))))
    assert "script" not in fragment.tags


def test_data_in_a_page_have_no_characters_of_markup() -> None:
    text = json_in_html({"a": "<!-- & ]]> \u2028"})
    assert not re.search(r"[<>&\u2028]", text) and json.loads(text) == {"a": "<!-- & ]]> \u2028"}


def test_an_unconfirmed_plan_and_one_without_a_network_have_pages_too() -> None:
    page = Page(to_html(plan(), "model"))
    (shown,) = page.data["plans"]
    assert shown["contest"] == [] and shown["tree"] == [] and "Not confirmed" in shown["headline"][1]


def test_a_notebook_shows_headline_contest_and_placement() -> None:
    words = Page(with_network()._repr_html_()).words
    assert "Ships: collage" in words and "openvino by itself" in words and "conv2d+add+relu" in words


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CollageError, match="cannot write the report"):
        write_html(plan(CONTESTANTS), tmp_path / "file" / "page.html", "model")
