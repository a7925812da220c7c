"""The tuning process's side of a contestant: starts its process, sends requests, stops it between them."""

from __future__ import annotations

import signal
from contextlib import suppress

from collage.deployed.messages import Answer, Failed, Load, Request
from collage.measure.helper_process import HelperProcess, Overdue


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
    number
        Of the process.
    loaded
        Whether it has been told what to run.
    """

    def __init__(self) -> None:
        self._process = HelperProcess("collage.deployed.contestant", {}, "tvm_ffi")
        self.number = self._process.number
        self.loaded = False
        self._begun = False

    def begin(self, request: Load) -> None:
        """Tell it what to load; it does so beside whatever else is going on, and `load` waits for it."""
        self._begun = True
        with suppress(BrokenPipeError):  # it has ended: whoever asks next is told
            self._process.send(request)

    def load(self, request: Load, timeout_s: float) -> Answer:
        """Let it load its model, once; raises as `ask`."""
        self.loaded = True
        if not self._begun:
            self.begin(request)
        return self._answer(timeout_s)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """Wake it, let it answer, and stop it again.

        Raises
        ------
        ContestantLost
            It gives no answer. It is ended then.
        """
        self._process.resume()
        with suppress(BrokenPipeError):
            self._process.send(request)
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> Answer:
        try:
            found: Answer = self._process.receive(timeout_s)
        except Overdue:
            self.close()
            raise NoAnswer(f"no answer within {timeout_s:.3g} s") from None
        except EOFError:
            status, cause = self._process.exit_status()
            self.close()
            raise ContestantLost(cause, status == -signal.SIGKILL) from None
        if isinstance(found, Failed):
            self.close()
        else:
            self._process.pause()
        return found

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.close()
