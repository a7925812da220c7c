"""Helper processes: they work for another process of Collage, end with it, and start without PyTorch.

    command("collage.measure.compiler")      # its command line

A process that only compiles or times has no use for PyTorch. A process in a session of its own would outlive a parent
that is killed, and a kernel that hangs would stay on the device; a helper does not.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from typing import IO, NoReturn

from collage.without_torch import import_tvm_without_torch

_PR_SET_PDEATHSIG = 1
#: Modules are found where the parent finds them. With `python -m` the current folder would come first, and a model
#: called openvino.so there would be taken for the package.
_BEGIN = "import sys; sys.path[:] = {path!r}; from collage.measure.helper import main; main()"


def command(module: str, library: str = "tvm") -> list[str]:
    """The command line that runs a module as a helper of this process, which needs TVM or only its "tvm_ffi"."""
    return [sys.executable, "-c", _BEGIN.format(path=sys.path), str(os.getpid()), library, module]


def channels() -> tuple[IO[bytes], IO[bytes]]:
    """Where a helper reads messages, and where it writes them. Libraries may print what they like from now on: it goes
    to standard error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its helpers itself
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return incoming, outgoing


def run_and_exit(main: Callable[[], None]) -> NoReturn:
    """Run, and end this process without unloading anything: engines' thread pools may take seconds to wind down, and a
    device in trouble may hang. What is raised goes to standard error.
    """
    status = 0
    try:
        main()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def end_with(parent: int) -> None:
    """Kill this process when its parent ends, in whatever way. Where `parent` is not its parent any more, that has
    ended already.

    On Linux it is the end of the *thread* that started this process.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl cannot signal the parent's end")
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    parent, library, module = sys.argv[1:]
    end_with(int(parent))
    import_tvm_without_torch(library)
    del sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
