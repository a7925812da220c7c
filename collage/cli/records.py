"""`collage records`: look into the records database, and move records between machines (docs/RECORDS.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collage.cli.exits import guarded
from collage.cli.options import Records, Verbose, require_writable

if TYPE_CHECKING:
    from collage.records import RecordDatabase

app = typer.Typer(no_args_is_help=True, help="Look into the records of all measurements; move them between machines.")

_Log = Annotated[
    str,
    typer.Argument(
        metavar="LOG.jsonl", help="The benchmark log; `.gz` compresses it, `-` is a pipe.", show_default=False
    ),
]


@app.command("stats")
@guarded
def stats(records: Records = None, verbose: Verbose = False) -> None:
    """Count the records, by kind, backend, device and status."""
    with _existing(records) as database:
        found = database.stats()
    print(f"{found.path}: {found.records:,} records, {found.size_bytes / 1e6:.1f} MB")
    if found.records:
        print(f"measured from {found.oldest} to {found.newest}")
    for title, counts in (
        *(("kind", found.by_kind), ("backend", found.by_backend)),
        *(("device", found.by_device), ("status", found.by_status)),
    ):
        for name, count in counts.items():
            print(f"  {title:8} {name:40} {count:8,}")


@app.command("list")
@guarded
def list_records(
    records: Records = None,
    kind: Annotated[str | None, typer.Option(help="Only candidate, plan or transition.", show_default=False)] = None,
    backend: Annotated[str | None, typer.Option(help="Only this backend.", show_default=False)] = None,
    verbose: Verbose = False,
) -> None:
    """Print one line per record, oldest first: when, cost in ms, what."""
    with _existing(records) as database:
        for record in database.matching(kind=kind, backend=backend):
            reason = f"  ({record.reason})" if record.reason and record.reason != "converged" else ""
            print(f"{record.timestamp[:19]}  {record.cost!s:24}  {record.key.kind:10}  {record.label}{reason}")


@app.command("export")
@guarded
def export(log: _Log, records: Records = None, verbose: Verbose = False) -> None:
    """Write all records to a benchmark log."""
    from collage.records import export_log

    if log != "-":
        require_writable({"LOG": Path(log)}, {"the records": records})
    with _existing(records) as database:
        count = export_log(database, sys.stdout if log == "-" else Path(log))
    if log != "-":
        print(f"Wrote {count:,} records to {log}")


@app.command("import")
@guarded
def import_records(log: _Log, records: Records = None, verbose: Verbose = False) -> None:
    """Store the records of a benchmark log; of two of the same thing the newer one stays."""
    from collage.records import RecordDatabase, import_log

    with RecordDatabase(records) as database:
        counts = import_log(database, sys.stdin if log == "-" else Path(log))
        print(
            f"{database.path}: {counts.read:,} records read, {counts.added:,} added, {counts.updated:,} updated, "
            f"{counts.unchanged:,} unchanged"
        )
    if counts.torn:
        print(f"warning: {counts.torn}", file=sys.stderr)


def _existing(path: Path | None) -> RecordDatabase:
    """The database; one that does not exist is an error, and is not made."""
    from collage.errors import RecordsError
    from collage.records import RecordDatabase, default_path

    wanted = (path or default_path()).expanduser()
    if not wanted.exists():
        raise RecordsError(f"{wanted}: there are no records yet")
    return RecordDatabase(wanted)
