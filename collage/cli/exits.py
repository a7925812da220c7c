"""How a command ends: one clear line on standard error, and an exit status that scripts can rely on.

| what happened | line | exit status |
|---|---|---|
| bad input, or an environment that does not allow it: every `CollageError`, every `OSError` | `error: ...` | 2 |
| Ctrl-C | what was kept, and how to resume | 130 |
| the reader of our output has gone | none | 141 |
| anything else | that it is a bug | 1 |

Tracebacks are shown with `--verbose` only.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from collage.errors import CollageError, SearchInterrupted
from collage.interrupt import interruptible

BUG, ERROR, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141

#: typer's usage errors; it brings its own copy of click's class, or click's own, depending on its version.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def guarded(command: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a command: its failures end the process as the table above says; `verbose` shows tracebacks."""

    @functools.wraps(command)
    def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            with interruptible():
                return command(*args, **kwargs)
        except (typer.Exit, typer.Abort, UsageError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            line, status = explain(error)
            if kwargs.get("verbose"):
                traceback.print_exc()
            if status == BROKEN_PIPE:
                discard_output()
            else:
                print_error(line)
            raise typer.Exit(status) from error

    return run


def explain(error: BaseException) -> tuple[str, int]:
    """The line for an error, and the exit status."""
    if isinstance(error, SearchInterrupted):
        return str(error), INTERRUPTED
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", BROKEN_PIPE
    if isinstance(error, CollageError):
        return f"error: {one_line(error)}", ERROR
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror or one_line(error)}", ERROR
    return f"error: this is a bug in Collage: {type(error).__name__}: {one_line(error)} (--verbose shows where)", BUG


def usage_line(error: Exception) -> str:
    """The line for a usage error; "" when it says nothing."""
    message = " ".join(str(getattr(error, "format_message", lambda: str(error))()).split())
    context = getattr(error, "ctx", None)
    see = f" (see `{context.command_path} --help`)" if context is not None else ""
    return f"error: {message}{see}" if message else ""


def one_line(error: BaseException) -> str:
    """An error's message without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def print_error(line: str) -> None:
    """Write one line to standard error; nothing is raised where its reader has gone."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Point standard output away from a pipe without a reader, so that flushing it when Python ends is silent."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
