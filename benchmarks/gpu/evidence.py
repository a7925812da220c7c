"""What a session on a borrowed machine brings home: one archive, whole at any moment.

The machine may be taken away, or the command killed, at any time. So the archive is written anew, beside the last one,
and takes its place when it is on disk: whoever looks finds a whole one, at most one interval old. Files that grow are
read as far as they go, databases between two transactions. Where everything does not fit, what counts most comes first.
"""

from __future__ import annotations

import io
import sqlite3
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from collage.files import replacing

#: Of the archive, which has to pass through a channel of 16 MiB a file.
MOST_BYTES = 15 << 20
NAME = "session.tar.gz"
#: Of one log: what it says last.
_MOST_OF_A_LOG = 2 << 20
#: Files that are larger may need much less when they are packed.
_LARGE = 1 << 20
#: Seconds that a transaction may take, and what SQLite says of a copy that is complete.
_PATIENCE_S = 2.0
_DONE = 101
#: What is kept, the most important first; patterns below the state's folder.
KEPT = (
    *("*.json", "*.jsonl", "*.md", "*.log", "log/*.log", "state/rows.jsonl", "state/*.log", "state/models/*.log"),
    *("cache/collage/*/choices/*.json", "*.csv", "state/records.db"),
    *("cache/collage/cutlass/*.log", "cache/collage/cutlass/*.txt"),
)


def files_of(state: Path, patterns: Iterable[str] = KEPT) -> Iterator[Path]:
    """The files that are kept, each once, the most important first; of equal importance, the newest."""
    seen: set[Path] = set()
    for pattern in patterns:
        found = [path for path in state.glob(pattern) if path.is_file() and path not in seen]
        seen.update(found)
        yield from sorted(found, key=_modified, reverse=True)


def archive(state: Path, target: Path, most: int = MOST_BYTES) -> int:
    """Write the archive of a state; how many files it has. `target` is replaced by a whole one, or stays as it is.

    Raises
    ------
    OSError
        It cannot be written.
    """
    count = 0
    with replacing(target) as partial, tarfile.open(partial, "w:gz", compresslevel=6) as packed:
        for path in files_of(state):
            try:
                data, when = content_of(path), path.stat().st_mtime
            except (OSError, sqlite3.Error):  # it went while we looked
                continue
            # What is packed has been written but for what the compressor holds back: a MiB at most.
            needed = len(zlib.compress(data, 6)) if len(data) > _LARGE else len(data)
            if partial.stat().st_size + needed > most:
                continue
            entry = tarfile.TarInfo(str(path.relative_to(state)))
            entry.size, entry.mtime = len(data), int(when)
            packed.addfile(entry, io.BytesIO(data))
            count += 1
    return count


def content_of(path: Path) -> bytes:
    """What a file holds now; of a log the end, of a database what its last transaction left.

    Raises
    ------
    OSError, sqlite3.Error
        It cannot be read.
    """
    if path.suffix == ".log":
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _MOST_OF_A_LOG))
            return stream.read()
    if path.suffix != ".db":
        return path.read_bytes()
    until = time.monotonic() + _PATIENCE_S

    def wait(status: int, remaining: int, total: int) -> None:
        if status != _DONE and time.monotonic() > until:
            raise TimeoutError(f"{path} is locked")

    with tempfile.NamedTemporaryFile(suffix=".db") as copied:
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0)) as source,
            closing(sqlite3.connect(copied.name)) as target,
        ):
            source.backup(target, progress=wait)
        return Path(copied.name).read_bytes()


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
