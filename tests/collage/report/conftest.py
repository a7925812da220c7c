"""Pages in Chromium: what is opened must log no error, and fetch nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collage.report.html import write_html

EVIL = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>"
SIZES = [(1280, 900), (390, 844)]

#: Opens a file, or the page of a plan.
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium of the distribution."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_file(browser: Any) -> Iterator[Open]:
    """Opens a file; at the end of a test there was no error, and nothing else was fetched."""
    wrong: list[str] = []
    contexts = []

    def opened(path: Path, size: tuple[int, int] = SIZES[0], scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("request", lambda request: wrong.append(request.url) if not _own(request.url, path) else None)
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def show(open_file: Open, tmp_path: Path) -> Open:
    """Opens the page of a plan, or of several."""

    def shown(plans: Any, title: str = "network.onnx", size: tuple[int, int] = SIZES[0], scheme: str = "light") -> Any:
        write_html(plans, tmp_path / "page.html", title)
        return open_file(tmp_path / "page.html", size, scheme)

    return shown


def _own(url: str, path: Path) -> bool:
    return url.startswith(("data:", "blob:", path.parent.as_uri()))
