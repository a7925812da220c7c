"""Events and queued writes on the device's stream: the Python side of `device_clock.cc`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tvm_ffi

from collage.measure.instrument import Span

_SOURCE = Path(__file__).with_name("device_clock.cc")
_RUNTIME = "libcudart.so.13"
#: What is left of a call at least when an overhead is subtracted.
_LEAST_S = 1e-9


def runtime_library() -> str:
    """The CUDA runtime that TVM uses: by its name where it is loaded, or the loader finds it, else in a wheel."""
    from collage.runtime.cuda.native import library_path

    try:
        ctypes.CDLL(_RUNTIME)
    except OSError:
        return str(library_path(_RUNTIME) or _RUNTIME)
    return _RUNTIME


@cache
def load_library() -> None:
    """Compile (once, then from tvm-ffi's cache) and load the native half."""
    from tvm_ffi.cpp import build

    library = build("collage_device_clock", cpp_files=str(_SOURCE), extra_cflags=["-O2"], extra_ldflags=["-ldl"])
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    tvm_ffi.get_global_func("collage.measure.device.open")(runtime_library())


def record() -> int:
    """Put an event into the stream; its number."""
    return int(_function("record")())


def elapsed(first: int, second: int) -> float:
    """Seconds from one event to another; both have to be over."""
    return float(_function("elapsed")(first, second))


def synchronize() -> None:
    """Wait for the stream. Raises RuntimeError when something in it has failed."""
    _function("synchronize")()


def reset() -> None:
    """Forget all events; their numbers are used again."""
    _function("reset")()


def evict(bytes_written: int) -> None:
    """Overwrite the device's last-level cache."""
    _function("evict")(bytes_written)


def restore(tensor: Any, pristine: Any) -> None:
    """Copy `pristine` over `tensor`, both on the device."""
    _function("restore")(tensor, pristine)


class Replay:
    """Calls that were captured as a graph, to be launched as often as one likes.

    Parameters
    ----------
    calls
        What is captured; all that it does on the device has been done before, because nothing may be allocated. It is
        kept as long as the graph, which reads the memory that it holds.

    Raises
    ------
    RuntimeError
        Something in it cannot be captured.
    """

    def __init__(self, calls: Callable[[], Any]) -> None:
        self._calls = calls
        self._graph = int(_function("capture")(tvm_ffi.convert(lambda: _nothing(calls()))))

    def launch(self) -> None:
        """Put it into the stream."""
        _function("launch")(self._graph)

    def __del__(self) -> None:
        if hasattr(self, "_graph"):
            _function("drop")(self._graph)


def _nothing(_result: Any) -> None:
    """Keeps a result from crossing into C++."""


def trouble() -> str:
    """What is wrong with the device for good, such as an illegal address; "" when nothing is."""
    return str(_function("trouble")())


def spans(vm: Any, run: Callable[[], Any], overhead_s: float = 0.0) -> list[Span]:
    """The calls that the VM makes while `run` runs, in order, timed on the device; its own builtins are left out.
    `overhead_s` is what two events take that nothing lies between.
    """
    load_library()
    vm.set_instrument(_function("stopwatch")())
    run()
    found = []
    for line in str(_function("read")()).splitlines():
        symbol, begin, end, host = line.split("\t")
        found.append(Span(symbol, float(begin), max(float(end) - overhead_s, float(begin) + _LEAST_S), float(host)))
    return found


def _function(name: str) -> Any:
    load_library()
    return tvm_ffi.get_global_func(f"collage.measure.device.{name}")
