"""The process of a contestant, seen from the tuning process: started, asked, stopped between requests, ended."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
from typing import Any

from collage.deployed.messages import Answer, Failed, Load, Request
from collage.measure.framing import receive, send
from collage.measure.helper import command


class ContestantLost(Exception):
    """The process has ended.

    Attributes
    ----------
    killed
        Whether somebody killed it: the system does where memory is short.
    """

    def __init__(self, message: str, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


class NoAnswer(ContestantLost):
    """The process did not answer in time, and was ended."""


class Contestant:
    """One contestant's process, which comes up beside others. Between requests it is stopped, so that no thread of it
    is awake.

    Attributes
    ----------
    loaded
        Whether it has been told what to run.
    """

    def __init__(self) -> None:
        self.loaded = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            command("collage.deployed.contestant"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,  # what has arrived is then always visible to the selector
            start_new_session=True,
        )

    @property
    def number(self) -> int:
        """Of the process."""
        return self._process.pid

    def load(self, request: Load, timeout_s: float) -> Answer:
        """Let it load its model, once; raises as `ask`."""
        self.loaded = True
        return self.ask(request, timeout_s)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """Wake it, let it answer, and stop it again.

        Raises
        ------
        ContestantLost
            It gives no answer. It is ended then.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._signal(signal.SIGCONT)
        try:
            send(self._process.stdin, request)
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                if not selector.select(timeout_s):
                    self.close()
                    raise NoAnswer(f"no answer within {timeout_s:.3g} s")
            found: Answer = receive(self._process.stdout)
        except (EOFError, BrokenPipeError):
            lost = ContestantLost(self._exit_cause(), self._process.returncode == -signal.SIGKILL)
            self.close()
            raise lost from None
        if isinstance(found, Failed):
            self.close()
        else:
            self._fall_asleep()
        return found

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:  # a request was still in the buffer
                continue

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _fall_asleep(self) -> None:
        """Stop it, and wait until it is: signals take their time."""
        self._signal(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):  # it ended just now, and has been waited for
            self._process.returncode = os.waitstatus_to_exitcode(status)

    def _exit_cause(self) -> str:
        code = self._process.wait()
        cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read()[-2000:].decode(errors="replace").splitlines()]
        said: Any = next((line for line in reversed(lines) if line), "")
        return f"{cause} ({said[:300]})" if said else cause
