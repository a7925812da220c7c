"""The command line: `collage tune | compile | run | train | backends | records | report | diff`.

Nothing of the compiling side is imported before a command needs it: `collage run` is a deployed process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import collage
from collage.cli import records as commands_records
from collage.cli.backends import backends
from collage.cli.collect import collect
from collage.cli.diff import diff
from collage.cli.exits import BROKEN_PIPE, ERROR, INTERRUPTED, UsageError, discard_output, print_error, usage_line
from collage.cli.plan import compile_plan, report
from collage.cli.run import run
from collage.cli.terminal import open_standard_streams
from collage.cli.train import train
from collage.cli.tune import tune

app = typer.Typer(
    name="collage",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Finds, by cost, which backend should run which part of a neural network, and compiles it.",
)
app.command("tune")(tune)
app.command("compile")(compile_plan)
app.command("run")(run)
app.command("train")(train)
app.command("backends")(backends)
app.command("report")(report)
app.command("diff")(diff)
commands_records.app.command("collect")(collect)
app.add_typer(commands_records.app, name="records")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"collage {collage.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process (`collage.cli.exits` says with which status)."""
    open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    status = _status(arguments)
    if status == INTERRUPTED:
        # What was measured is on disk. The destructors of interrupted libraries may wait, or complain on the terminal.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _status(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="collage", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        line = usage_line(error)
        if line:  # without one, the help has been printed
            print_error(line)
        return ERROR
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return BROKEN_PIPE
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
