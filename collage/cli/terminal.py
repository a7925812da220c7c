"""A clean terminal: while something long runs, only Collage writes to it.

TVM, the engines and the compilers that they start write warnings and log lines to file descriptors 1 and 2, from C++,
from Python and from child processes. These are pointed elsewhere for as long as that work goes on; Collage keeps a
descriptor of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def quiet(verbose: bool) -> Iterator[TextIO]:
    """A stream on the terminal's standard error, for progress. Everybody else is silent inside, unless `verbose`."""
    if verbose:
        yield sys.stderr
        return
    _flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in kept:
            os.dup2(nowhere, number)
        with os.fdopen(kept[2], "w", encoding="utf-8", errors="replace", buffering=1, closefd=False) as terminal:
            yield terminal
    finally:
        _flush()
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)


def open_standard_streams() -> None:
    """Give a process that was started without standard streams (`2>&-`) some that go nowhere.

    Else the next file that is opened, such as a database, gets descriptor 2, and log lines are written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue  # the next write raises it again
