"""Watching: a compiled network is timed call by call, so that each partition has its latency inside the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tvm_ffi
from tvm.runtime.vm import VirtualMachine

from collage.arrays import read_array
from collage.measure.clock import clock_of
from collage.measure.instrument import Span
from collage.runtime.devices import device_of, upload
from collage.runtime.model import CompiledModel

#: The calls of a virtual machine in their order: symbol, and median seconds (`parts_of`).
Parts = tuple[tuple[str, float], ...]
#: The same calls: symbol, and median seconds from the beginning of the first one to the beginning and the end of each.
Calls = tuple[tuple[str, float, float], ...]
#: What it calls for a copy to another device.
COPY = "vm.builtin.to_device"
#: What TVM's virtual machine calls for a run of calls that is a CUDA graph (`relax.transform.RewriteCUDAGraph`).
_CAPTURE = "vm.builtin.cuda_graph.run_or_capture"
_INVOKE = "vm.builtin.invoke_closure"


class WatchedModel:
    """A virtual machine with the stopwatch, which launches call by call what the deployed one has in CUDA graphs.

    An instrument cannot be taken out of a virtual machine again, so that it is one of its own.

    Attributes
    ----------
    watched
        The virtual machine.
    host_seconds
        What the host takes for its launches (`collage.measure.clock.DeviceClock`).
    """

    def __init__(self, module: Any, arguments: Sequence[Any], devices: Sequence[Any]) -> None:
        with _uncaptured():
            self.watched: Any = VirtualMachine(module, list(devices))
        self.host_seconds = 0.0
        self._arguments = arguments

    def call_watched(self) -> None:
        """Run once."""
        self.watched["main"](*self._arguments)


def watch(model: CompiledModel, inputs: Sequence[str], runs: int) -> tuple[Parts, Parts, Calls]:
    """`parts_of`, `launches_of` and `calls_of` of some runs. Nothing is loaded a second time.

    Parameters
    ----------
    model
        Loaded in this process.
    inputs
        Paths of `.npy` files, in the order of its inputs.
    runs
        How many.
    """
    clock, devices = clock_of(model.device), [device_of(name) for name in model.devices]
    watched = WatchedModel(model.module, [upload(read_array(path), devices[0]) for path in inputs], devices)
    watched.call_watched()
    calls = [clock.watch_once(watched) for _ in range(runs)]
    return parts_of(calls), launches_of(calls), calls_of(calls)


def parts_of(watched: Sequence[Sequence[Span]]) -> Parts:
    """What each call of a network took: median seconds from its beginning to that of the next call, so that what the
    virtual machine does in between is counted with the call before it. On another device to its own end: what is in
    between are the events, which a plan that runs does not have (2.8 us for each call on an H200).
    """
    if not _alike(watched):
        return ()
    taken = np.median([_taken(run) for run in watched], axis=0)
    return tuple((span.symbol, float(seconds)) for span, seconds in zip(watched[0], taken, strict=True))


def _taken(run: Sequence[Span]) -> list[float]:
    """Seconds of each call of one run."""
    following = [*(span.begin for span in run[1:]), run[-1].end]
    return [span.seconds if span.host else begin - span.begin for span, begin in zip(run, following, strict=True)]


def launches_of(watched: Sequence[Sequence[Span]]) -> Parts:
    """What the host took to issue each call, median seconds; () where the host is what runs them."""
    if not _alike(watched):
        return ()
    seconds = np.median([[span.host for span in run] for run in watched], axis=0)
    symbols = [span.symbol for span in watched[0]]
    return tuple(zip(symbols, map(float, seconds), strict=True)) if seconds.any() else ()


def calls_of(watched: Sequence[Sequence[Span]]) -> Calls:
    """When each call began and ended, in the median of the runs."""
    if not _alike(watched):
        return ()
    since = [[(span.begin - run[0].begin, span.end - run[0].begin) for span in run] for run in watched]
    medians: list[list[float]] = np.median(since, axis=0).tolist()
    return tuple((span.symbol, begin, end) for span, (begin, end) in zip(watched[0], medians, strict=True))


def _alike(watched: Sequence[Sequence[Span]]) -> bool:
    """Whether all runs made the same calls, one at least."""
    return len({tuple(span.symbol for span in run) for run in watched}) == 1 and bool(watched[0])


@contextmanager
def _uncaptured() -> Iterator[None]:
    """Virtual machines made inside of this launch CUDA graphs call by call, so that their calls can be watched.

    A virtual machine looks functions up by name once, when it is made.
    """
    original = tvm_ffi.get_global_func(_CAPTURE, allow_missing=True)
    if original is None:
        yield
        return

    invoke = tvm_ffi.get_global_func(_INVOKE)

    def run(machine: Any, function: Any, arguments: Any, _index: int, *_shape: Any) -> Any:
        return invoke(machine, function, *arguments)

    tvm_ffi.register_global_func(_CAPTURE, run, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_CAPTURE, original, override=True)
