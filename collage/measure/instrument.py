"""The stopwatch inside the virtual machine, and the emptying of caches: the Python side of `instrument.cc`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

_SOURCE = Path(__file__).with_name("instrument.cc")


@dataclass(frozen=True)
class Span:
    """One call of the VM: its symbol, when it began and ended, in seconds of a monotonic clock, and what the host took
    to issue it, in seconds, where it ran on another device.
    """

    symbol: str
    begin: float
    end: float
    host: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@cache
def load_library() -> None:
    """Compile (once, then from tvm-ffi's cache) and load the native half."""
    from tvm_ffi.cpp import build

    ctypes.CDLL(build("collage_instrument", cpp_files=str(_SOURCE), extra_cflags=["-O2"]), ctypes.RTLD_GLOBAL)


def spans(vm: Any, run: Callable[[], Any]) -> list[Span]:
    """The calls that the VM makes while `run` runs, in order; of its own builtins copies to other devices alone."""
    load_library()
    vm.set_instrument(_function("stopwatch")())
    _function("reset")()
    run()
    lines = str(_function("read")()).splitlines()
    return [Span(symbol, int(b) * 1e-9, int(e) * 1e-9) for symbol, b, e in (line.split("\t") for line in lines)]


def evict(bytes_per_thread: int, threads: int) -> None:
    """Overwrite the caches: all threads at once, each so many bytes of its own."""
    load_library()
    _function("evict")(bytes_per_thread, threads)


def touch(tensors: Iterable[Any]) -> None:
    """Bring tensors into this core's cache."""
    load_library()
    for tensor in tensors:
        _function("touch")(tensor)


@cache
def _function(name: str) -> Any:
    return tvm_ffi.get_global_func(f"collage.measure.{name}")
