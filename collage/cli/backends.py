"""`collage backends`: what can be used on this machine, and what is missing."""

from __future__ import annotations

from collage.cli.exits import guarded
from collage.cli.options import Verbose
from collage.cli.terminal import quiet


@guarded
def backends(verbose: Verbose = False) -> None:
    """List the backends: available or what is missing, version, device, threads, priority."""
    with quiet(verbose):
        rows = _rows()
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("backend", "style", "device", "threads", "priority", "version", "available"):
        table.add_column(name, overflow="fold", no_wrap=name == "backend")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    console.print(table)


def _rows() -> list[tuple[str, ...]]:
    from collage import plugins
    from collage.errors import PluginError
    from collage.runtime.threads import default_threads

    rows: list[tuple[str, ...]] = []
    for name in plugins.names("backends"):
        try:
            backend = plugins.load("backends", name)
        except PluginError as error:
            rows.append((name, "", "", "", "", "", f"no: {error}"))
            continue
        state = backend.availability()
        rows.append(
            (
                *(name, backend.style, backend.device, str(default_threads()), str(backend.priority)),
                backend.version() if state.available else "",
                "yes" if state.available else f"no: {state.reason}",
            )
        )
    return rows
