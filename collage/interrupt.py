"""Ctrl-C inside a compiler becomes KeyboardInterrupt again, instead of an error of the candidate.

When the interrupt arrives while TVM runs one of its own Python parts, Python raises KeyboardInterrupt there, and on its
way through TVM's C++ it becomes a RuntimeError without a message. Or it interrupts the linker that TVM has started, and
TVM reports that. Either way a candidate would be recorded as one that does not compile, and the run would go on. So
every exception that leaves TVM after an interrupt is turned into KeyboardInterrupt.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from collage.errors import SearchInterrupted


@contextmanager
def resumable(records: str) -> Iterator[None]:
    """Ctrl-C inside says where what was measured is kept, and how to go on.

    Raises
    ------
    SearchInterrupted
        In place of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SearchInterrupted(
            f"interrupted; what was measured is kept in {records}, and the same command goes on from there"
        ) from None


class interruptible:
    """Inside, Ctrl-C raises KeyboardInterrupt, and TVM's functions, when they return after it, raise it too.

    Should the interrupt get lost all the same, KeyboardInterrupt is raised at the end. Does nothing outside of the main
    thread, and where somebody else handles SIGINT already.
    """

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        self._active = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        self._pressed = False
        self._boundary = sys._getframe(1)
        if self._active:
            signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._active:
            if self._pressed:
                sys.setprofile(None)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        del self._boundary
        if self._pressed and not isinstance(error, (KeyboardInterrupt, SearchInterrupted)):
            raise KeyboardInterrupt from error

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        self._pressed = True
        busy = self._outermost_of_tvm(frame)

        def on_return(returning: FrameType, event: str, _argument: Any) -> None:
            if returning is busy and event == "return":  # whether it returns a value or raises something
                raise KeyboardInterrupt

        if busy is not None:
            sys.setprofile(on_return)
        raise KeyboardInterrupt

    def _outermost_of_tvm(self, frame: FrameType | None) -> FrameType | None:
        """The first function of TVM that was called since the block began and has not returned; None without one."""
        found = None
        while frame is not None and frame is not self._boundary:
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("tvm", "tvm_ffi"):
                found = frame
            frame = frame.f_back
        return found
