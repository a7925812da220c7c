"""The lock of the host: of all tuning runs on it, of any user and database, one at a time takes samples.

It is a lock of the operating system (`flock`) on an empty file that everybody may open. It ends with the process that
holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from collage.progress import Reporter

_NAME = "collage-timing.lock"
#: Whether this thread holds the lock: it need not wait for itself.
_held: ContextVar[bool] = ContextVar("held", default=False)


@contextmanager
def timing(reporter: Reporter, folders: Sequence[str] | None = None) -> Iterator[None]:
    """Inside, no other run on this host takes samples. It may be entered again inside.

    Where no file can be opened there is no lock, and the reporter is told.

    Parameters
    ----------
    reporter
        Told when another run is waited for.
    folders
        Where the file may be, in order of preference; None is where all users look.
    """
    if _held.get():
        yield
        return
    lock = _open(shared_folders() if folders is None else folders)
    token = _held.set(True)
    try:
        if lock is None:
            reporter.note("timing without the lock of the host: no folder for it can be written")
        else:
            _acquire(lock, reporter)
        yield
    finally:
        _held.reset(token)
        if lock is not None:
            os.close(lock)


def _acquire(lock: int, reporter: Reporter) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        reporter.step("waiting for another tuning run on this host", 0)
        fcntl.flock(lock, fcntl.LOCK_EX)


def shared_folders() -> list[str]:
    """Of files that all processes of the host find. `TMPDIR` comes last, because it often is a user's own; the first
    one is in memory, and works while disks are full.
    """
    return ["/dev/shm", "/tmp", tempfile.gettempdir()]


def _open(folders: Sequence[str]) -> int | None:
    """The lock's file, made where it is not there; None where no folder has or takes one."""
    for folder in folders:
        path = Path(folder) / _NAME
        for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
            try:  # not O_CREAT alone: kernels refuse that for another user's file in a folder that all may write to
                lock = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            except OSError:
                continue
            if flags & os.O_CREAT:
                os.fchmod(lock, 0o666)  # whatever the umask
            return lock
    return None
