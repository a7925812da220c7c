"""`collage diff`: what moved between two plans of one network, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collage.cli.exits import guarded
from collage.cli.options import Html, require_writable


@guarded
def diff(
    before: Annotated[Path, typer.Argument(metavar="A.plan.json", help="The first plan.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B.plan.json", help="The second plan.", show_default=False)],
    html: Html = None,
) -> None:
    """Compare two plans of one network: what moved, what it costs, and which measurement changed it."""
    require_writable({"--html": html}, {"the first plan": before, "the second plan": after})
    from collage.planned.file import read
    from collage.report.difference import difference
    from collage.report.difference_tables import print_difference
    from collage.report.html import write_difference

    found = difference(read(before), read(after))
    if html is None:
        print_difference(found)
    else:
        write_difference(found, html, f"{before.name} and {after.name}")
        print(f"Wrote {html}")
