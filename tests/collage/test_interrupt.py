"""Ctrl-C is raised where it is seen: not in the middle of TVM, where it would turn into another error."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import pytest
import tvm

from collage.errors import SearchInterrupted
from collage.interrupt import interruptible


def _press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


@tvm.transform.module_pass(opt_level=0)
def interrupted_pass(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    _press_ctrl_c()
    return mod


def test_without_care_an_interrupt_inside_a_pass_becomes_another_error() -> None:
    with pytest.raises(RuntimeError):
        interrupted_pass(tvm.IRModule({}))


def test_an_interrupt_inside_a_pass_is_raised_when_the_pass_returns() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted_pass(tvm.IRModule({}))
        pytest.fail("the interrupt came too late")


def test_what_the_interrupt_breaks_inside_of_tvm_does_not_hide_it() -> None:
    @tvm.transform.module_pass(opt_level=0)
    def failing_pass(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        _press_ctrl_c()
        raise ValueError("the linker was interrupted")

    seen = []
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            failing_pass(tvm.IRModule({}))
        except Exception as error:  # as a compiler's failures are caught
            seen.append(error)
    assert not seen


def test_an_interrupt_that_somebody_swallows_is_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(), contextlib.suppress(BaseException):
        _press_ctrl_c()


def test_an_interrupted_search_stays_one() -> None:
    with pytest.raises(SearchInterrupted), interruptible():
        try:
            _press_ctrl_c()
        except KeyboardInterrupt:
            raise SearchInterrupted("kept") from None


def test_elsewhere_an_interrupt_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        _press_ctrl_c()
        pytest.fail("the interrupt came too late")


def test_inside_of_a_pass_of_the_caller_only_what_runs_inside_counts() -> None:
    seen = []

    @tvm.transform.module_pass(opt_level=0)
    def partitioning_pass(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        try:
            with interruptible():
                _press_ctrl_c()
        except KeyboardInterrupt:
            seen.append("interrupted")
        return mod

    partitioning_pass(tvm.IRModule({}))
    assert seen == ["interrupted"]


def test_the_handler_goes_away_and_others_are_left_alone() -> None:
    with interruptible():
        mine = signal.getsignal(signal.SIGINT)
        with interruptible():
            assert signal.getsignal(signal.SIGINT) is mine
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    worker = threading.Thread(target=lambda: interruptible().__enter__())
    worker.start()
    worker.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
