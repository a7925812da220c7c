"""Compiling processes: what hangs in native code is killed, what is lost is tried again, the others stay warm."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collage.errors import CollageError
from collage.measure.faults import Failure
from collage.measure.framing import send
from collage.measure.helper_process import Deadline, HelperProcess, Overdue, seconds_denied
from collage.measure.pool import Pool

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def compilers() -> Pool:
    return Pool()


def hang(folder: Path) -> None:
    """In native code that no signal but one ends, with a temporary file."""
    (Path(os.environ["TMPDIR"]) / "object.o").write_text("half a file")
    (folder / "tmpdir").write_text(os.environ["TMPDIR"])
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    while True:
        ctypes.CDLL(None).pause()


def abort(_: Any) -> None:
    os.abort()


def out_of_space(_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def lost_once(folder: Path) -> int:
    """As where the kernel kills what takes most memory."""
    if not (folder / "lost").exists():
        (folder / "lost").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 7


def number(_: Any) -> int:
    return os.getpid()


def wait_for(path: Path) -> bool:
    end = time.monotonic() + LIMIT_S / 4
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.exists()


def call(job: tuple[Callable[[Any], Any], Any]) -> Any:
    return job[0](job[1])


def test_each_failure_costs_its_own_item_and_results_come_in_order(compilers: Pool, tmp_path: Path) -> None:
    jobs = [(len, "abc"), (abort, 0), (lost_once, tmp_path), (out_of_space, 0), (int, "x"), (len, "ab")]
    three, crashed, again, full, refused, two = compilers.map(call, jobs, 2, LIMIT_S)
    assert (three, again, two) == (3, 7, 2)
    assert crashed == Failure("crashes the compiler: killed by SIGABRT")
    assert full == Failure("does not compile: [Errno 28] No space left on device", "machine")
    assert refused.reason.startswith("does not compile: invalid literal") and refused.blame == "candidate"


def test_what_hangs_in_native_code_is_killed_and_leaves_no_files(compilers: Pool, tmp_path: Path) -> None:
    (hung,) = compilers.map(hang, [tmp_path], 1, 0.5)
    assert hung == Failure("does not compile within 0.5 s")
    assert not Path((tmp_path / "tmpdir").read_text()).exists()


def test_processes_stay_and_one_that_has_died_meanwhile_costs_nothing(compilers: Pool) -> None:
    (first,) = compilers.map(number, [0], 1, LIMIT_S)
    assert compilers.map(number, [0], 1, LIMIT_S) == [first]
    os.kill(first, signal.SIGKILL)
    (second,) = compilers.map(number, [0], 1, LIMIT_S)
    assert isinstance(second, int) and second != first


def test_an_interrupted_run_leaves_no_compiler(
    compilers: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    take = compilers.take
    monkeypatch.setattr(compilers, "take", lambda fresh: started.append(take(fresh)) or started[-1])

    def interrupt(_mapping: Any, wait: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("collage.measure.pool._Mapping._proceed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        compilers.map(hang, [tmp_path], 1, LIMIT_S)
    assert started and not any(worker.process.alive for worker in started)


def test_where_no_process_comes_up_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.measure.helper_process.command", lambda module, library: [sys.executable, "-c", "1/0"])
    with pytest.raises(CollageError, match=r"no compiling process comes up: exit status 1 .*ZeroDivisionError"):
        Pool().map(number, [0], 1, LIMIT_S)


def test_the_time_that_a_process_waits_for_a_processor_extends_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, denied = [0.0], [0.0]
    monkeypatch.setattr("collage.measure.helper_process.time.monotonic", lambda: now[0])
    monkeypatch.setattr("collage.measure.helper_process.seconds_denied", lambda _: denied[0])
    limit = Deadline(1, 10.0)
    now[0], denied[0] = 12.0, 5.0
    assert limit.left() == pytest.approx(3.0)
    now[0] = 15.5
    assert limit.left() == 0.0 and limit.blame == "candidate"
    denied[0] = 35.0
    now[0] = 41.0
    assert limit.left() == 0.0 and limit.blame == "machine"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_two_processes_on_one_processor_deny_each_other() -> None:
    one = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, [{one}])\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
    try:
        end = time.monotonic() + 60
        while seconds_denied(processes[0].pid) < 0.05:
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_items_are_made_while_others_are_worked_on(compilers: Pool, tmp_path: Path) -> None:
    """The first item waits for what is done to make the second one."""

    def items() -> Iterator[Path]:
        yield tmp_path / "second"
        (tmp_path / "second").touch()
        yield tmp_path / "second"

    assert compilers.map(wait_for, items(), 1, LIMIT_S) == [True, True]


def test_messages_that_come_at_once_cost_no_look_at_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one before every sample: looking through /proc then would disturb what is timed."""
    looks: list[int] = []
    monkeypatch.setattr("collage.measure.helper_process.seconds_denied", lambda number: looks.append(number) or 0.0)
    reading, writing = os.pipe()
    process = object.__new__(HelperProcess)
    process.number, process.stdout = os.getpid(), os.fdopen(reading, "rb", 0)
    with process.stdout, os.fdopen(writing, "wb") as stream:
        for _ in range(3):
            send(stream, "timing")
            assert process.receive(60.0) == "timing"
        assert not looks
        with pytest.raises(Overdue):
            process.receive(0.01)
        assert looks


def test_processes_that_were_started_early_are_the_ones_that_work() -> None:
    pool = Pool()
    pool.start(1)
    (early,) = [worker.process for worker in pool._idle]
    pool.start(1)
    assert pool.map(number, [0], 1, LIMIT_S) == [early.number]
