"""The threads of kernels and engines: every task of a region runs once, whoever calls and whenever."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm_ffi
from onnx import TensorProto, helper, save

from collage.compile.build import build
from collage.frontend import load
from collage.runtime import load as load_model
from collage.runtime import native
from collage.runtime.threads import configure_threads


class Environment(ctypes.Structure):
    _fields_ = (("sync_handle", ctypes.c_void_p), ("num_task", ctypes.c_int32))


TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Environment), ctypes.c_void_p)
Task = Callable[[int, "ctypes._Pointer[Environment]"], int]


class Calls(ctypes.Structure):
    """`ParallelCalls` of parallel.h."""

    _fields_ = (
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int, TASK, ctypes.c_void_p, ctypes.c_int)),
        ("barrier", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Environment))),
    )


@pytest.fixture(scope="module")
def calls() -> Calls:
    native.load_library()
    return Calls.from_address(tvm_ffi.get_global_func("collage.runtime.parallel_calls")())


def launch(calls: Calls, task: Task, count: int = 0) -> int:
    return int(calls.launch(TASK(lambda i, env, _: task(i, env)), None, count))


def ran(calls: Calls) -> list[tuple[int, int]]:
    """Each task of a region: its number, and of how many."""
    seen: list[tuple[int, int]] = []

    def task(i: int, env: ctypes._Pointer[Environment]) -> int:
        seen.append((i, env[0].num_task))
        return 0

    assert launch(calls, task) == 0
    return sorted(seen)


def each_once() -> list[tuple[int, int]]:
    """With as many threads as TVM has for the calling thread."""
    threads = tvm_ffi.get_global_func("runtime.NumThreads")()
    return [(i, threads) for i in range(threads)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_every_task_runs_once_with_the_number_of_threads_that_is_set(calls: Calls, threads: int) -> None:
    def body() -> None:
        configure_threads(threads)
        assert all(ran(calls) == each_once() for _ in range(300))

    in_threads(body, 1)


def test_threads_may_call_at_the_same_time(calls: Calls) -> None:
    def body() -> None:
        configure_threads(2)
        assert all(ran(calls) == each_once() for _ in range(300))

    in_threads(body, 4)


def test_the_failure_of_a_task_is_the_failure_of_the_call(calls: Calls) -> None:
    configure_threads(2)
    for failing in (0, 1):
        assert launch(calls, lambda i, env, failing=failing: -1 if i == failing % env[0].num_task else 0) == -1
    assert launch(calls, lambda i, _: 0) == 0


def test_a_region_inside_a_region_runs_where_it_is_called(calls: Calls) -> None:
    configure_threads(2)
    inner: list[list[tuple[int, int]]] = []

    def outer(_i: int, _env: object) -> int:
        inner.append(ran(calls))
        return 0

    assert launch(calls, outer) == 0
    assert inner == [[(0, 1)]] * len(each_once())


@pytest.mark.parametrize("late", [0, 1])
def test_nobody_passes_a_barrier_before_all_have_come(calls: Calls, late: int) -> None:
    configure_threads(2)
    come: list[int] = []
    passed: list[int] = []

    def task(i: int, env: ctypes._Pointer[Environment]) -> int:
        if i == late:
            time.sleep(0.002)  # the other one falls asleep meanwhile
        come.append(i)
        calls.barrier(i, env)
        passed.append(len(come))
        return 0

    for _ in range(20):
        come.clear()
        passed.clear()
        assert launch(calls, task) == 0
        assert set(passed) == {len(come)}


def test_workers_that_sleep_wake_up(calls: Calls) -> None:
    configure_threads(2)
    for _ in range(20):
        time.sleep(0.002)
        assert ran(calls) == each_once()


def fewer_processors(calls: Calls) -> int:
    """By how many processors the workers of this thread have less than this thread, which must have all."""
    caller, found = threading.get_native_id(), {}

    def task(_i: int, _env: object) -> int:
        found[threading.get_native_id()] = len(os.sched_getaffinity(0))
        time.sleep(0.001)  # the others take a task each
        return 0

    while len(found) < 2:
        assert launch(calls, task) == 0
    whole = found.pop(caller)
    (workers,) = set(found.values())
    assert whole == len(os.sched_getaffinity(os.getpid()))
    return whole - workers


_IN_A_PROCESS = """
import os, threading, tvm_ffi
from collage.runtime import native
from collage.runtime.threads import configure_threads
from tests.collage.runtime.test_thread_pool import Calls, fewer_processors

native.load_library()
calls = Calls.from_address(tvm_ffi.get_global_func("collage.runtime.parallel_calls")())
processors = len(os.sched_getaffinity(0))
configure_threads(processors)
alone = fewer_processors(calls)
ready, over = threading.Barrier(2), threading.Barrier(2)

def another():
    configure_threads(processors)
    found.append(fewer_processors(calls))
    ready.wait()
    over.wait()

found = []
other = threading.Thread(target=another)
other.start()
ready.wait()
beside = fewer_processors(calls)
child = os.fork()
if child == 0:
    os._exit(fewer_processors(calls))
forked = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
over.wait()
other.join()
after = fewer_processors(calls)
while after == 0:  # the other one's pool goes with its thread, which may outlive `join`
    after = fewer_processors(calls)
print(alone, *found, beside, forked, after)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_workers_leave_their_callers_processor_while_nobody_else_calls() -> None:
    """Beside a busy process of another session, Linux woke them where their caller was; with two callers, who keep all
    processors busy, it knows better (docs/TVM.md). A forked process has one caller.
    """
    watched = "import faulthandler; faulthandler.dump_traceback_later(100, exit=True)\n"  # where it hangs, if it does
    script = subprocess.run(
        [sys.executable, "-c", watched + _IN_A_PROCESS], capture_output=True, text=True, timeout=120, check=False
    )
    assert script.stdout.split() == ["1", "0", "0", "1", "1"], script.stderr


def test_more_threads_than_processors_run_anywhere(calls: Calls) -> None:
    def body() -> None:
        configure_threads(len(os.sched_getaffinity(0)) + 1)
        assert fewer_processors(calls) == 0

    in_threads(body, 1)


def test_a_forked_process_has_threads_of_its_own(calls: Calls) -> None:
    configure_threads(2)
    expected = each_once()
    assert ran(calls) == expected
    child = os.fork()
    if child == 0:
        os._exit(0 if ran(calls) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_kernels_of_tvm_run_on_these_threads(calls: Calls, tmp_path: Path) -> None:
    shape = [1, 64, 56, 56]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    build(load(tmp_path / "m.onnx"), [], 2).export(tmp_path / "m.so")
    load_model(tmp_path / "m.so")
    pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(str(tmp_path / "m.so")), "__TVMBackendParallelLaunch")
    assert pointer.value == ctypes.cast(calls.launch, ctypes.c_void_p).value


def in_threads(body: Callable[[], None], count: int) -> None:
    """Run in threads of their own, and raise what one of them raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
