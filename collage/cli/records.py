"""`collage records`: look into the records database, move records between machines, forget some (docs/RECORDS.md)."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collage.cli.exits import guarded
from collage.cli.options import Records, Verbose, file_of, require_writable

if TYPE_CHECKING:
    from collage.records import RecordDatabase

app = typer.Typer(no_args_is_help=True, help="Look into the records of all measurements; move or forget them.")

_Log = Annotated[
    str,
    typer.Argument(
        metavar="LOG.jsonl",
        help="The benchmark log; `.gz` compresses it, `.parquet` is a table, `-` is a pipe.",
        show_default=False,
    ),
]


@app.command("stats")
@guarded
def stats(records: Records = None, verbose: Verbose = False) -> None:
    """Count the records, by kind, backend, device and status, and the observations by host."""
    with _existing(records) as database:
        found = database.stats()
    size = f"{found.size_bytes / 1e6:.1f} MB"
    print(f"{found.name}: {found.records:,} records of {found.observations:,} observations, {size}")
    if found.oldest and found.newest:
        future = " (in the future: the clock was set back, or was wrong)" if found.newest > _ago(-_DAY) else ""
        print(f"measured from {found.oldest} to {found.newest}{future}")
    for title, counts in (
        *(("kind", found.by_kind), ("backend", found.by_backend)),
        *(("device", found.by_device), ("status", found.by_status), ("host", found.by_host)),
    ):
        for name, count in counts.items():
            print(f"  {title:8} {name or 'unknown':40} {count:8,}")


@app.command("report")
@guarded
def report(
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE.html", help="The page to write.", show_default=False)
    ],
    source: Annotated[
        str | None,
        typer.Argument(metavar="[PATH|URL]", help="The database, or a benchmark log.  [default: --records]"),
    ] = None,
    records: Records = None,
    verbose: Verbose = False,
) -> None:
    """Write a web page: what there are records of, how far repetitions agree, what failed, what disturbed sessions."""
    from collage.records import default_path, read_observations
    from collage.records.places import place_of
    from collage.report.html import write_sections
    from collage.report.records_overview import overview
    from collage.report.records_page import headline, sections

    wanted = source or records or str(default_path())
    require_writable({"-o": output}, {"the records": file_of(wanted)})
    found = overview(read_observations(wanted))
    lines = headline(found)
    write_sections(lines, sections(found), output, Path(place_of(wanted, 0.0).name.partition("?")[0]).name)
    print("\n".join([*lines, f"Wrote {output}"]))


@app.command("list")
@guarded
def list_records(
    records: Records = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Only candidate, plan, transition, sensitivity or calibration.", show_default=False),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Only this backend.", show_default=False)] = None,
    verbose: Verbose = False,
) -> None:
    """Print one line per record, in the order in which they were first stored: when, cost in ms, what."""
    with _existing(records) as database:
        for record in database.matching(kind=kind, backend=backend):
            reason = f"  ({record.reason})" if record.reason and record.reason != "converged" else ""
            print(f"{record.timestamp[:19]}  {record.cost!s:24}  {record.key.kind:10}  {record.label}{reason}")


@app.command("export")
@guarded
def export(log: _Log, records: Records = None, verbose: Verbose = False) -> None:
    """Write all observations to a benchmark log."""
    from collage.records import export_log

    if log != "-":
        require_writable({"LOG": Path(log)}, {"the records": file_of(records)})
    with _existing(records) as database:
        count = export_log(database, sys.stdout if log == "-" else Path(log))
    if log != "-":
        print(f"Wrote {count:,} observations to {log}")


@app.command("import")
@guarded
def import_records(log: _Log, records: Records = None, verbose: Verbose = False) -> None:
    """Add the observations of a benchmark log; those that are there already stay once."""
    from collage.records import RecordDatabase, import_log

    with RecordDatabase(records) as database:
        counts = import_log(database, sys.stdin if log == "-" else Path(log))
        print(
            f"{database.name}: {counts.read:,} observations read, {counts.added:,} added, "
            f"{counts.known:,} known already"
        )
    if counts.torn:
        print(f"warning: {counts.torn}", file=sys.stderr)


@app.command("merge")
@guarded
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="PATH|URL...", help="Databases, or benchmark logs.", show_default=False),
    ],
    records: Records = None,
    verbose: Verbose = False,
) -> None:
    """Add all observations of other databases; those that are there already stay once."""
    from collage.records import RecordDatabase, merge

    with RecordDatabase(records) as database:
        for source in sources:
            counts = merge(database, source)
            print(f"{database.name}: {counts.read:,} observations read, {counts.added:,} added")


@app.command("forget")
@guarded
def forget(
    records: Records = None,
    status: Annotated[str | None, typer.Option(metavar="ok|invalid", help="Only these.", show_default=False)] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Only candidate, plan, transition, sensitivity or calibration.", show_default=False),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Only what this backend takes part in; plans are of all backends.", show_default=False),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="Only of this machine.", show_default=False)
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only older than this, as 90m, 12h, 30d or 8w.", show_default=False),
    ] = None,
    newer_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only newer than this.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    verbose: Verbose = False,
) -> None:
    """Remove observations of which all that is given is true; what else is known of the same thing stays."""
    from collage.records import Selection
    from collage.records.key import KINDS

    selection = Selection(
        status=_one_of(status, ("ok", "invalid"), "--status"),
        kind=_one_of(kind, KINDS, "--kind"),
        backend=backend,
        device=device,
        before=None if older_than is None else _ago(_age(older_than, "--older-than")),
        after=None if newer_than is None else _ago(_age(newer_than, "--newer-than")),
    )
    if everything == (selection != Selection()):
        raise typer.BadParameter(
            "say which (--status, --kind, --backend, --device, --older-than, --newer-than), or --all"
        )
    with _existing(records) as database:
        found = database.forget(selection, dry_run)
    would = "would forget" if dry_run else "forgot"
    print(
        f"{database.name}: {would} {found.observations:,} observations; "
        f"nothing else is known of {found.records:,} of the things measured"
    )
    for title, counts in (("backend", found.by_backend), ("status", found.by_status)):
        for name, count in counts.items():
            print(f"  {title:8} {name:40} {count:8,}")


_DAY = timedelta(days=1)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _age(text: str, option: str) -> timedelta:
    """`"30d"` -> 30 days. Raises typer.BadParameter."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None:
        raise typer.BadParameter(f"{text!r} does not read like 90m, 12h, 30d or 8w", param_hint=option)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _ago(age: timedelta) -> str:
    """A time in the past as records write it; the beginning of time where it is before that."""
    try:
        moment = datetime.now(timezone.utc) - age
    except OverflowError:
        moment = datetime.min.replace(tzinfo=timezone.utc)
    return moment.isoformat(timespec="microseconds")


def _one_of(value: str | None, valid: tuple[str, ...], option: str) -> str | None:
    if value is not None and value not in valid:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(valid)}", param_hint=option)
    return value


def _existing(records: str | None) -> RecordDatabase:
    """The database; a file that does not exist is an error, and is not made."""
    from collage.errors import RecordsError
    from collage.records import RecordDatabase, default_path, is_url

    wanted = records if records is not None and is_url(records) else Path(records or default_path()).expanduser()
    if isinstance(wanted, Path) and not wanted.exists():
        raise RecordsError(f"{wanted}: there are no records yet")
    return RecordDatabase(wanted)
