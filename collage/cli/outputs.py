"""Files to be written are looked at before minutes are spent on what goes into them."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from collage.errors import CollageError


def require_writable(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check that every output can be written, and that none is written over an input or over another output.

    Parameters
    ----------
    outputs, inputs: option -> path; None where the option is not given.

    Raises
    ------
    CollageError: one cannot be written; the message names the option, the path and the reason. Nothing is left behind.
    """
    seen = {path.resolve(): option for option, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), option)
        if other != option:
            raise CollageError(f"{path}: {option} would overwrite {other}")
        try:
            _probe(path)
        except OSError as error:
            raise CollageError(f"{path}: {option} cannot be written: {error.strerror or error}") from error


def _probe(path: Path) -> None:
    """Raise OSError when a file cannot be written to `path`: a full or read-only disk, or something in the way."""
    if path.exists():
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError(None, "it is a directory" if stat.S_ISDIR(mode) else "it is not a regular file")
        os.close(os.open(path, os.O_WRONLY))
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise OSError(None, f"{folder} is not a directory")
    with tempfile.TemporaryFile(dir=folder, prefix=".collage-") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
