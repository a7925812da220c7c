"""HelperProcess: how the tuning process starts, asks and ends a helper (`collage.measure.helper`).

A compiler or a kernel may hang in native code, where no alarm reaches Python. The only limit that holds is to kill the
process, with all that it has started and its temporary files.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from collage.measure.faults import Blame
from collage.measure.framing import receive, send
from collage.measure.helper import command

#: Limits are extended to at most this multiple of themselves.
_EXTENSION = 4
#: Messages that come within so many seconds are waited for without a limit: to set one up takes a millisecond of this
#: process, between all samples of the other one, on processors that are to be quiet.
_AT_ONCE_S = 0.5


class Deadline:
    """A limit of the time in which a process could run: what it waits for a processor is added, within bounds."""

    def __init__(self, process: int, seconds: float) -> None:
        self._process, self._seconds = process, seconds
        self._begin, self._denied = time.monotonic(), seconds_denied(process)

    def left(self) -> float:
        """Seconds until it is to be asked again; 0 when it has passed."""
        extended = min(self._seconds + self._waited(), _EXTENSION * self._seconds)
        return max(0.0, self._begin + extended - time.monotonic())

    @property
    def blame(self) -> Blame:
        """Of what has passed it: the machine, when there were not so many seconds in which the process could run."""
        return "machine" if time.monotonic() - self._begin - self._waited() < self._seconds else "candidate"

    def _waited(self) -> float:
        return max(0.0, seconds_denied(self._process) - self._denied)


class Overdue(Exception):
    """There was no message in time."""

    def __init__(self, blame: Blame) -> None:
        super().__init__("no answer in time")
        self.blame = blame


def seconds_denied(process: int) -> float:
    """For how long a thread of the process, the one that waited longest, was ready but had no processor; 0 where the
    kernel does not tell.
    """
    denied = 0
    for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            denied = max(denied, int(thread.read_text().split()[1]))
    return denied * 1e-9


class HelperProcess:
    """A module that runs in a process of its own, and messages to it and from it.

    Parameters
    ----------
    module
        What runs: it reads messages from where `collage.measure.helper.channels` says.
    environment
        What differs from this process's environment.
    library
        "tvm", or "tvm_ffi" where it needs no more of TVM: that is a second faster.
    """

    def __init__(self, module: str, environment: Mapping[str, str], library: str = "tvm") -> None:
        self._folder = _temporary_folder()
        self._errors = _file_in_memory()
        process = subprocess.Popen(
            command(module, library),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,  # what has arrived is then always visible to a selector
            env={**os.environ, **environment, **({"TMPDIR": self._folder} if self._folder else {})},
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        self.number = process.pid
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process = process
        self._finish = weakref.finalize(self, _finish, process, self._errors, self._folder, os.getpid())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, message: Any) -> None:
        """Raises BrokenPipeError when the process has ended."""
        send(self.stdin, message)

    def receive(self, seconds: float) -> Any:
        """The next message.

        Raises
        ------
        Overdue
            It does not come within so many seconds in which the process could run, and the half second before they
            begin. EOFError: the process has ended.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self.stdout, selectors.EVENT_READ)
            if not selector.select(min(_AT_ONCE_S, seconds)):
                deadline = Deadline(self.number, seconds)
                while not selector.select(deadline.left()):
                    if not deadline.left():
                        raise Overdue(deadline.blame)
        return receive(self.stdout)

    def pause(self) -> None:
        """Stop it with all that it has started, and wait until it is stopped."""
        with suppress(ProcessLookupError):
            os.killpg(self.number, signal.SIGSTOP)
            _, status = os.waitpid(self.number, os.WUNTRACED)
            if not os.WIFSTOPPED(status):  # it ended just now, and has been waited for
                self._process.returncode = os.waitstatus_to_exitcode(status)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        with suppress(ProcessLookupError):
            os.killpg(self.number, signal.SIGCONT)

    def exit_status(self) -> tuple[int, str]:
        """The status of a process that has ended, or has closed its pipe and is about to, and what is known of the
        cause.
        """
        code = self._process.wait()
        cause = f"exit status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 2000))
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return code, f"{cause} ({lines[-1][:300]})" if lines else cause

    def close(self) -> None:
        """Stop the process, whatever it is doing, and remove its temporary files."""
        self._finish()


def _file_in_memory() -> IO[bytes]:
    """A file that can be written while disks are full, where the system has such."""
    create = getattr(os, "memfd_create", None)
    return os.fdopen(create("errors"), "w+b", 0) if create else tempfile.TemporaryFile(buffering=0)


def _temporary_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix="collage-")
    except OSError:  # the process will say what it has no space for
        return ""


def _finish(process: subprocess.Popen[bytes], errors: IO[bytes], folder: str, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the tuning process that ends
        return
    if process.returncode is None:  # else its number may be another process's by now
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            with suppress(BrokenPipeError):  # a message was still in the buffer
                stream.close()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
