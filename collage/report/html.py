"""Reports as one web page each, which needs nothing from anywhere else.

The page is a bundle of scripts and styles (its sources are in `page/`) with what it shows as JSON: plans, or sections.
Names of networks and backends are data: the page shows them as text. Its policy lets the bundle run and no other
script, and fetches nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from collage.errors import CollageError
from collage.planned.data import PlanData
from collage.report.difference import Difference
from collage.report.difference_tables import difference_sections, difference_text, headline_of
from collage.report.page_data import page_data
from collage.report.sections import Drawn
from collage.report.summary import summarise

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><noscript><pre>{text}</pre></noscript><div id="page"></div>
<script type="application/json" id="data">{data}</script>
<script>{script}</script></body></html>
"""


def write_html(plans: PlanData | Sequence[PlanData], path: Path, title: str) -> None:
    """Write the page of a plan, or of plans for several shapes.

    Raises
    ------
    CollageError
        The file cannot be written.
    """
    _write(to_html(plans, title), path)


def write_sections(headline: Sequence[str], sections: Sequence[Drawn], path: Path, title: str, text: str = "") -> None:
    """Write a page of sections; raises as `write_html` does.

    Parameters
    ----------
    headline
        The first sentences.
    sections
        As `collage.report.sections` makes them.
    text
        For browsers without scripts; the headline where there is none.
    """
    data = {"title": title, "shapes": None, "plans": [], "headline": list(headline), "sections": list(sections)}
    _write(_page(title, data, text or "\n".join(headline)), path)


def write_difference(found: Difference, path: Path, title: str) -> None:
    """Write the page of what differs between two plans; raises as `write_html` does."""
    write_sections([headline_of(found)], difference_sections(found), path, title, difference_text(found))


def _write(text: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CollageError(f"{path}: cannot write the report: {error.strerror or error}") from error


def to_html(plans: PlanData | Sequence[PlanData], title: str) -> str:
    """The page; its licences are those of `page/bundle/LICENCES.txt`."""
    shown = [plans] if isinstance(plans, PlanData) else list(plans)
    return _page(title, page_data(shown, title), summarise(*shown))


def _page(title: str, data: dict[str, Any], text: str) -> str:
    bundle = files("collage.report") / "page" / "bundle"
    script = (bundle / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data: blob:"
    return _PAGE.format(
        policy=policy,
        title=escape(title),
        style=(bundle / "report.css").read_text(encoding="utf-8"),
        text=escape(text),
        data=json_in_html(data),
        script=script,
    )


def json_in_html(data: Any) -> str:
    """JSON that no browser takes for markup, wherever it stands."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
