"""Writing files: a file is replaced as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, ending: str = "") -> Iterator[Path]:
    """A path to write to; the file takes the place of `path` when the block ends without an error.

    It lies beside `path`, in a folder that is created, and is on disk before it is renamed. `ending` is for writers
    that go by the end of a name.

    Raises
    ------
    OSError
        It cannot be written; `path` is as it was.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part{ending}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
