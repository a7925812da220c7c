"""The summary as a web page: whole, self-contained, escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from collage.errors import CollageError
from collage.report.html import to_html, write_html
from tests.collage.report.plans import plan
from tests.collage.report.test_summary import CONTESTANTS

_VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that tags nest, and collects what would be fetched, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_is_whole_and_says_what_the_table_says() -> None:
    page = Page(to_html(plan(CONTESTANTS), "resnet50.onnx"))
    for words in ("collage ships: the fastest of 3 plans", "conv2d+add+relu", "1,3,5", "+11.1%", "1.110 to 1.130"):
        assert words in page.words
    assert "gives wrong numbers" in page.words


def test_the_page_needs_nothing_from_elsewhere() -> None:
    text = to_html(plan(CONTESTANTS), "resnet50.onnx")
    assert not Page(text).fetched
    assert "://" not in text and "@import" not in text and "url(" not in text


def test_names_are_text_not_markup() -> None:
    page = Page(to_html(plan(CONTESTANTS, notes=("<script>alert(1)</script>",)), "<b>model</b>.onnx"))
    assert "script" not in page.tags and "b" not in page.tags
    assert "<script>alert(1)</script>" in page.words and "<b>model</b>.onnx" in page.words


def test_an_unconfirmed_plan_has_a_page_too() -> None:
    assert "unconfirmed" in Page(to_html(plan(), "model")).words


def test_a_page_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CollageError, match="cannot write the report"):
        write_html(plan(CONTESTANTS), tmp_path / "file" / "page.html", "model")
