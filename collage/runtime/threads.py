"""One number of threads for everything that runs in a process.

TVM's kernels run on a thread pool of their own, the engines on theirs. All take the same number, and none may spin
while another
works: a spinning pool slows the others by more than any of them gains (docs/TVM.md has the measurements).
"""

from __future__ import annotations

import os

import tvm_ffi

#: TVM's workers poll this many times for the next task before they sleep.
_SPIN_COUNT = "1000"


def thread_environment(threads: int) -> dict[str, str]:
    """The environment of a process in which TVM's pool has this many threads; what the user has set stays."""
    wanted = {
        "TVM_NUM_THREADS": str(threads),
        "TVM_THREAD_POOL_SPIN_COUNT": _SPIN_COUNT,
        "TVM_BIND_THREADS": "0",
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
    }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def configure_threads(threads: int) -> None:
    """Set the number of threads of TVM's pool in this process, whether it has started or not."""
    os.environ.update(thread_environment(threads))
    configure = tvm_ffi.get_global_func("runtime.config_threadpool", allow_missing=True)
    if configure is not None:
        configure(0, threads)


def default_threads() -> int:
    """The number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else (os.cpu_count() or 1)
