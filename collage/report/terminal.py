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
    try:
        kept = {number: os.dup(number) for number in (1, 2)}
    except OSError:  # the process was started without one of them
        yield sys.stderr
        return
    _flush()
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


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            continue  # whoever writes next is told
