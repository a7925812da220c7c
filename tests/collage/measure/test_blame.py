"""Whom a failure is blamed on, and what of it is tried again."""

from __future__ import annotations

import errno
import signal

import pytest

from collage.measure.faults import Failure, Trials, is_doubtful, is_scarcity

CRASH = Failure("crashes", "crash")
MACHINE = Failure("no space", "machine")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("4096 requested and 12 written"),
        MemoryError(),
        RuntimeError("ld: final link failed: No space left on device"),
        RuntimeError("g++: fatal error: Killed signal terminated program cc1plus"),
    ],
    ids=str,
)
def test_the_machine_is_to_blame_for_what_it_lacks(error: Exception) -> None:
    assert is_scarcity(error) and Failure.of(error, "does not compile").blame == "machine"
    try:
        raise ValueError("cannot be lowered") from error
    except ValueError as outer:
        assert is_scarcity(outer)


def test_other_errors_are_the_candidates() -> None:
    assert Failure.of(ValueError("bad shape"), "does not compile") == Failure("does not compile: bad shape")
    assert not is_scarcity(OSError(errno.ENOENT, "no such file"))


def test_what_a_signal_says_of_who_is_to_blame() -> None:
    assert Failure.of_exit(-signal.SIGKILL, "crashes", "killed by SIGKILL").blame == "machine"
    assert Failure.of_exit(-signal.SIGSEGV, "crashes", "killed by SIGSEGV").blame == "crash"
    assert Failure.of_exit(-signal.SIGABRT, "crashes", "SIGABRT (what(): std::bad_alloc)").blame == "machine"
    assert Failure.of_exit(1, "crashes", "exit status 1").blame == "crash"


def test_two_crashes_in_fresh_processes_condemn() -> None:
    trials = Trials()
    assert trials.judge(CRASH, fresh=False) is None
    assert trials.judge(CRASH, fresh=True) is None
    assert trials.judge(CRASH, fresh=True) == Failure("crashes", "candidate")


def test_the_machine_is_given_a_second_chance_and_never_condemns() -> None:
    trials = Trials()
    assert trials.judge(MACHINE) is None and trials.judge(CRASH) is None
    assert trials.judge(MACHINE) == MACHINE


@pytest.mark.parametrize(
    ("reason", "doubtful"),
    [
        ("does not compile: [Errno 28] No space left on device", True),
        ("cannot be prepared: MemoryError: ", True),
        ("hangs while timing: no answer within 60 s", True),
        ("crashes while loading: killed by SIGKILL", True),
        ("crashes while loading: killed by SIGSEGV", False),
        ("hangs (no answer within 60 s while timing)", False),
        ("wrong result: output 0 is off by 1", False),
    ],
)
def test_old_records_that_are_doubted(reason: str, doubtful: bool) -> None:
    assert is_doubtful(reason) == doubtful
