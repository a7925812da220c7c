"""One number of threads for everything that a model runs on.

TVM's kernels run on a thread pool of their own, the engines on theirs. All take the same number, and none may spin
while another works: a spinning pool slows the others by more than any of them gains (docs/TVM.md has the measurements).

Each thread that calls TVM's kernels has a pool of its own (`thread_pool.h`). How many of its threads work is set for
each model; TVM allows no more than it was told at the first call, so it is told of one for every processor.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import cache

import tvm_ffi

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
    """Set how many threads work for calls of TVM's kernels from this thread."""
    prepare_threads(threads)
    configure = tvm_ffi.get_global_func("runtime.config_threadpool", allow_missing=True)
    if configure is not None:
        configure(0, threads)
        _here().threads = threads


def ensure_threads(threads: int) -> None:
    """`configure_threads`, where calls from this thread have another number."""
    if _here().threads != threads:
        configure_threads(threads)


def default_threads() -> int:
    """The number of processors that this process may use."""
    return len(processors())


def processors() -> list[int]:
    """The numbers of the processors that this process may use, ascending."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity else list(range(os.cpu_count() or 1))


class _Here(threading.local):
    """Of one thread: how many threads work for its calls; 0 where nobody has said."""

    threads = 0


@cache
def _here() -> _Here:
    return _Here()


@cache
def _found() -> Mapping[str, str]:
    """The environment of the process before anything was set here."""
    return dict(os.environ)
