"""The page's bundle is what `make page` makes of the page's sources: neither is edited without the other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import collage.report

PAGE = Path(collage.report.__file__).parent / "page"
_LARGEST = 3_000_000


def digest(paths: Iterable[str]) -> str:
    """As `build.mjs` makes it."""
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path}\n".encode() + (PAGE / path).read_bytes() + b"\n")
    return found.hexdigest()


@pytest.mark.parametrize("what", ["sources", "bundle"])
def test_the_bundle_belongs_to_the_sources(what: str) -> None:
    sources = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"]
    sources += [f"src/{path.name}" for path in sorted((PAGE / "src").iterdir())]
    made = [f"bundle/{name}" for name in ("LICENCES.txt", "report.css", "report.js")]
    known = json.loads((PAGE / "bundle" / "digests.json").read_text())
    assert digest({"sources": sources, "bundle": made}[what]) == known[what], "run `make page`"


def test_the_bundle_is_small_and_can_stand_inside_of_a_page() -> None:
    script, style = ((PAGE / "bundle" / name).read_text() for name in ("report.js", "report.css"))
    assert len(script) + len(style) < _LARGEST
    assert "</script" not in script.lower() and "<!--" not in script and "</style" not in style.lower()


def test_the_licences_of_what_is_bundled_lie_beside_it() -> None:
    text = (PAGE / "bundle" / "LICENCES.txt").read_text()
    wanted = json.loads((PAGE / "package.json").read_text())["dependencies"]
    assert [name for name in wanted if f"{name} " not in text] == []
    assert "Permission is hereby granted" in text
