"""Ctrl-C that is not lost in a compiler.

When the interrupt arrives while TVM runs one of its own Python parts, Python raises KeyboardInterrupt there, and on
its way through TVM's C++ it becomes a RuntimeError without a message: a candidate would count as one that does not
compile, be recorded so, and the run would go on. So the interrupt waits until TVM has returned.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_RETRY_S = 0.05


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, Ctrl-C raises KeyboardInterrupt as soon as no function of TVM is running.

    Does nothing outside of the main thread, and where somebody else handles SIGINT already.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    boundary = sys._getframe(2)  # whose `with` this is; contextlib is in between
    retries: list[threading.Timer] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if not _inside_tvm(frame, boundary):
            raise KeyboardInterrupt
        if not any(timer.is_alive() for timer in retries):
            timer = threading.Timer(_RETRY_S, os.kill, (os.getpid(), number))
            timer.daemon = True
            retries[:] = [timer]
            timer.start()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for timer in retries:
            timer.cancel()


def _inside_tvm(frame: FrameType | None, boundary: FrameType) -> bool:
    """Whether a function of TVM is running between here and the frame that began."""
    while frame is not None and frame is not boundary:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("tvm", "tvm_ffi"):
            return True
        frame = frame.f_back
    return False
