"""One number of threads for everything that a model runs on.

TVM's kernels run on a thread pool of their own, the engines on theirs. All take the same number, and none may spin
while another works: a spinning pool slows the others by more than any of them gains (docs/TVM.md has the measurements).

TVM has one pool for each thread that calls its kernels. It starts with the first call and cannot grow, so it starts
with a thread for every processor; how many of them work is set for each model.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cache

import tvm_ffi

from collage.errors import CompiledModelError

#: TVM's workers poll this many times for the next task before they sleep.
_SPIN_COUNT = "1000"
_NUMBER = "TVM_NUM_THREADS"


def thread_environment(threads: int) -> dict[str, str]:
    """The environment of a process in which TVM's pool has this many threads; what the user has set stays."""
    wanted = {
        _NUMBER: str(threads),
        "TVM_THREAD_POOL_SPIN_COUNT": _SPIN_COUNT,
        "TVM_BIND_THREADS": "0",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }
    found = _found()
    return {name: found.get(name, value) for name, value in wanted.items()}


def prepare_threads(threads: int) -> None:
    """Set this process up for pools that have not started yet: room for this many threads in TVM's."""
    environment = thread_environment(threads)
    if _NUMBER not in _found():
        environment[_NUMBER] = str(max(threads, default_threads()))
    os.environ.update(environment)


def configure_threads(threads: int) -> None:
    """Set how many threads of TVM's pool work for calls from this thread. The pool starts when it has not yet.

    Raises
    ------
    CompiledModelError
        This process was forked from one in which this thread had started the pool.
    """
    prepare_threads(threads)
    here, process = _here(), os.getpid()
    if here.process not in (0, process):
        raise CompiledModelError(
            "TVM's threads did not come along when this process was forked: call the model from a new thread, or start "
            'processes by "spawn"'
        )
    configure = tvm_ffi.get_global_func("runtime.config_threadpool", allow_missing=True)
    if configure is not None:
        configure(0, threads)
        here.threads, here.process = threads, process


def ensure_threads(threads: int) -> None:
    """`configure_threads`, where that has not been done for calls from this thread.

    Raises
    ------
    CompiledModelError
        As of `configure_threads`.
    """
    here = _here()
    if here.threads != threads or here.process != os.getpid():
        configure_threads(threads)


def default_threads() -> int:
    """The number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else (os.cpu_count() or 1)


class _Here(threading.local):
    """Of one thread: how many threads of its pool work, and in which process it started; 0 where it has not."""

    threads = 0
    process = 0


@cache
def _here() -> _Here:
    return _Here()


@cache
def _found() -> Mapping[str, str]:
    """The environment of the process before anything was set here."""
    return dict(os.environ)
