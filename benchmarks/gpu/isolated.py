"""A function in a process of its own: it may crash, hang, or bring libraries that clash with others.

The process ends with this one, comes up without PyTorch unless asked, and is killed with all that it has started
(compilers have workers). Nothing of TVM or PyTorch is imported before the function runs, so modules that define such
functions import both inside of them.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from collage.measure.helper import end_with
from collage.without_torch import import_tvm_without_torch


@dataclass(frozen=True)
class _Failure:
    reason: str


class Isolated:
    """Runs `target(*arguments)` in another process, from now on.

    The answer of a function is what it returns. A generator answers with each value that it yields; between two of
    them it waits for a message, which the `yield` gives.

    Parameters
    ----------
    torch
        Whether PyTorch is wanted there. TVM would import it, which takes seconds.
    log
        File that the output of the process is appended to; None leaves it where this process's goes.
    """

    def __init__(
        self, target: Callable[..., Any], *arguments: Any, torch: bool = False, log: Path | None = None
    ) -> None:
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._log = log
        self._process = context.Process(target=_run, args=(other, os.getpid(), torch, log, target, arguments))
        self._process.start()
        other.close()  # so that the end of the process is noticed

    def ask(self, message: Any, deadline: float) -> Any:
        """The answer to a message; see `receive`."""
        with suppress(BrokenPipeError):  # it has ended: `receive` says how
            self._connection.send(message)
        return self.receive(deadline)

    def receive(self, deadline: float) -> Any:
        """The next answer, by a time of `time.monotonic()`.

        Raises
        ------
        TimeoutError
            There is none by then.
        RuntimeError
            The function raised something, or the process ended without an answer.
        """
        try:
            if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("no answer in time")
            answer = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise RuntimeError(f"the process ended with status {self._process.exitcode}{self._last_line()}") from None
        if isinstance(answer, _Failure):
            raise RuntimeError(answer.reason)
        return answer

    def close(self) -> None:
        """End the process, whatever it is doing."""
        if self._connection.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()  # where it has not become the leader of its group yet
        self._process.join()
        self._connection.close()

    def _last_line(self) -> str:
        text = self._log.read_text(errors="replace") if self._log is not None and self._log.exists() else ""
        lines = [line for line in text.splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""


def _run(
    connection: Connection,
    parent: int,
    torch: bool,
    log: Path | None,
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.setsid()
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if log is not None:
        with log.open("ab") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
    if not torch:
        import_tvm_without_torch()
    message = None
    try:
        answers = target(*arguments)
        if not isinstance(answers, Generator):
            connection.send(answers)
            return
        while True:
            connection.send(answers.send(message))
            message = connection.recv()
    except (StopIteration, EOFError):
        return
    except Exception as error:  # whatever a library raises is the result
        traceback.print_exc()
        lines = [line for line in str(error).splitlines() if line.strip()]
        connection.send(_Failure(f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]))
