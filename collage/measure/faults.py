"""Faults: whether the candidate or the machine is to blame for a failure.

A candidate that does not compile, gives wrong numbers, or crashes twice in a fresh process each is Invalid, and stays
so. A failure from a lack of space or memory, a lost process or a busy processor is the machine's. It is tried again,
and if that fails, too, the candidate is Unknown: the failure says nothing about it.
"""

from __future__ import annotations

import errno
import re
import signal
from dataclasses import dataclass
from typing import Literal

from collage.errors import last_line

#: Who is to blame. Of a crash it is not known before there was another one in a fresh process.
Blame = Literal["candidate", "machine", "crash"]

#: How often a candidate is tried again for what the machine is to blame for.
_RETRIES = 1
#: Crashes in fresh processes that condemn a candidate.
_CRASHES = 2

_SCARCE = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EROFS}
#: What compilers, linkers and libraries write of the same. A compiler's parts are killed when memory runs out.
_SCARCITY = re.compile(
    r"No space left on device|Disk quota exceeded|Cannot allocate memory|std::bad_alloc|MemoryError|out of memory|"
    r"Too many open files|Resource temporarily unavailable|Killed signal terminated program|No usable temporary|"
    r"\d+ requested and \d+ written",  # NumPy, of a full disk
    re.IGNORECASE,
)
#: Signals that are not a program's own doing: of the kernel when memory runs out, or space under a mapped file, of the
#: user or of an administrator.
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGBUS, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
#: Reasons that older versions recorded for faults of the machine too.
_DOUBTFUL = re.compile(rf"{_SCARCITY.pattern}|SIGKILL|SIGTERM|^hangs while", re.IGNORECASE)


@dataclass(frozen=True)
class Failure:
    """Why there is no artifact or no measurement, and who is to blame."""

    reason: str
    blame: Blame = "candidate"

    @classmethod
    def of(cls, error: BaseException, doing: str) -> Failure:
        """What an exception means that came out of `doing`, such as "does not compile"."""
        return cls(f"{doing}: {last_line(error)}", blame_of(error))

    @classmethod
    def of_exit(cls, code: int, doing: str, cause: str) -> Failure:
        """What it means that a process ended with this status, for which the cause is known."""
        outside = (code < 0 and -code in _FROM_OUTSIDE) or is_scarce(cause)
        return cls(f"{doing}: {cause}", "machine" if outside else "crash")


def is_scarcity(error: BaseException | None) -> bool:
    """Whether the machine ran out of something, according to an error or one that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SCARCE):
            return True
        if is_scarce(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_scarce(reason: str) -> bool:
    """Whether the machine ran out of something, according to the reason of a failure."""
    return _SCARCITY.search(reason) is not None


def is_doubtful(reason: str) -> bool:
    """Whether a candidate that was recorded as Invalid for this reason is to be tried again."""
    return _DOUBTFUL.search(reason) is not None


def blame_of(error: BaseException) -> Blame:
    """Who is to blame for an error that was raised for a candidate."""
    return "machine" if is_scarcity(error) else "candidate"


class MachineFault(Exception):
    """The machine is to blame that something could not be built which no candidate can do without."""


class Trials:
    """The failures of one candidate so far."""

    def __init__(self) -> None:
        self._crashes = self._faults = 0

    def judge(self, failure: Failure, fresh: bool = True) -> Failure | None:
        """What is to be told of the candidate, or None when it is to be tried again in a fresh process.

        Parameters
        ----------
        failure
            Of the trial that has just ended.
        fresh
            Whether it was the first in its process.
        """
        if failure.blame == "crash":
            self._crashes += fresh
            return Failure(failure.reason) if self._crashes >= _CRASHES else None
        if failure.blame == "machine":
            self._faults += 1
            return failure if self._faults > _RETRIES else None
        return failure
