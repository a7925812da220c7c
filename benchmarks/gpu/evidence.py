"""What a session on a borrowed machine brings home: one archive, whole at any moment.

The machine may be taken away, or the command killed, at any time. So the archive is written anew, beside the last one,
and takes its place when it is on disk: whoever looks finds a whole one, at most one interval old. Files that grow are
read as far as they go. Where everything does not fit, what counts most comes first.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from collage.files import replacing

#: Of the archive, which has to pass through a channel of 16 MiB a file.
MOST_BYTES = 15 << 20
NAME = "session.tar.gz"
#: What is kept, the most important first; patterns below the state's folder.
KEPT = (
    *("*.json", "*.jsonl", "*.md", "log/*.log", "state/rows.jsonl", "state/records.jsonl.gz", "state/*.log"),
    *(
        "state/models/*.log",
        "cache/collage/*/choices/*.json",
        "cache/collage/cutlass/*.log",
        "cache/collage/cutlass/*.txt",
    ),
    *("state/records.db", "kernels/*"),
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
                data, when = path.read_bytes(), path.stat().st_mtime
            except OSError:  # it went while we looked
                continue
            # What is packed has been written but for what the compressor holds back: a MiB at most.
            if partial.stat().st_size + len(data) > most:
                continue
            entry = tarfile.TarInfo(str(path.relative_to(state)))
            entry.size, entry.mtime = len(data), int(when)
            packed.addfile(entry, io.BytesIO(data))
            count += 1
    return count


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
