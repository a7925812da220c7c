"""One contestant of a race, in a process of its own: a compiled model of ours, or a peer.

Messages in and out are pickled; `benchmarks.gpu_race` is the other side, and starts it.

A process each, because two compilers' libraries need not get along, because one that crashes must not end the race, and
because each is then deployed as its users deploy it. They take turns: whoever is not asked waits on a pipe, and leaves
processor and device alone.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from benchmarks import gpu_peers
from benchmarks.gpu_messages import REFERENCE, Failed, Load, Loaded, Prepared, Proceed, Timed, Turn
from benchmarks.gpu_peers import PEERS


def main() -> None:
    """Answer messages until the other side closes the pipe. What libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    load: Callable[[], tuple[Loaded, _Contestant | None]] | None = None
    contestant: _Contestant | None = None
    answer: Prepared | Loaded | Timed | Failed
    while True:
        try:
            message = pickle.load(asked)
        except EOFError:
            return
        try:
            if isinstance(message, Load):
                load, answer = _prepare(message), Prepared()
            elif isinstance(message, Proceed) and load is not None:
                answer, contestant = load()
            elif contestant is None:
                answer = Failed("it was asked to run before it was loaded")
            else:
                answer = contestant.turn(message)
        except Exception as error:  # whatever a library raises is this contestant's result
            lines = [line for line in str(error).splitlines() if line.strip()]
            answer = Failed(f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500])
        pickle.dump(answer, answers)
        answers.flush()


def _prepare(asked: Load) -> Callable[[], tuple[Loaded, _Contestant | None]]:
    """All that may be done while another contestant uses the device; what is given does the rest."""
    from benchmarks.workloads import build, random_inputs

    if asked.name == REFERENCE or asked.name in PEERS:
        import benchmarks.onnx_torch  # noqa: F401  (imports PyTorch)
    else:
        import collage.runtime  # noqa: F401
    model = build(asked.network, dtype=asked.dtype, batch=asked.batch)
    inputs = list(random_inputs(model, seed=asked.seed).values())
    return lambda: _load(asked, model, inputs)


def _load(asked: Load, model: ModelProto, inputs: Sequence[np.ndarray]) -> tuple[Loaded, _Contestant | None]:
    begin = time.monotonic()
    if asked.name == REFERENCE:
        exact = gpu_peers.reference(model, inputs, asked.device)
        return Loaded(tuple(exact), time.monotonic() - begin), None
    if asked.name in PEERS:
        run = gpu_peers.peer(asked.name, model, inputs, asked.device, asked.precision)
        outputs, versions = tuple(t.cpu().numpy() for t in run()), gpu_peers.versions()
        clock: Any = _TorchClock() if asked.device == "cuda" else _Clock()
    else:
        run = _compiled(asked, inputs)
        outputs, versions = tuple(np.array(t.numpy()) for t in run()), {}
        clock = _CudaClock() if asked.device == "cuda" else _Clock()
    return Loaded(outputs, time.monotonic() - begin, versions), _Contestant(run, clock)


def _compiled(asked: Load, inputs: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A model of ours, from its file, as a deployed process loads it."""
    import tvm

    import collage.runtime

    model = collage.runtime.load(asked.library)
    device = tvm.cuda(0) if asked.device == "cuda" else tvm.cpu()
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]
    for _ in range(3):
        model.run(tensors)
    return lambda: model.run(tensors)


class _Contestant:
    """Something that runs, and the clock of its device."""

    def __init__(self, run: Callable[[], Any], clock: Any) -> None:
        self._run = run
        self._clock = clock

    def turn(self, asked: Turn) -> Timed:
        run, clock = self._run, self._clock
        for _ in range(asked.discard):
            run()
        clock.wait()
        call, device = [], []
        for _ in range(asked.runs):
            begin = time.perf_counter()
            clock.mark(0)
            run()
            clock.mark(1)
            clock.wait()
            call.append(time.perf_counter() - begin)
            device.append(clock.between())
        begin = time.perf_counter()
        for _ in range(asked.runs):
            run()
        clock.wait()
        return Timed(tuple(call), tuple(device), (time.perf_counter() - begin) / asked.runs)


class _Clock:
    """Of a processor: a call is over when it returns."""

    def __init__(self) -> None:
        self._marks = [0.0, 0.0]

    def mark(self, position: int) -> None:
        self._marks[position] = time.perf_counter()

    def between(self) -> float:
        """Seconds from mark 0 to mark 1."""
        return self._marks[1] - self._marks[0]

    def wait(self) -> None:
        """Until the device is done."""


class _TorchClock(_Clock):
    """Events on PyTorch's stream."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def mark(self, position: int) -> None:
        self._events[position].record()

    def between(self) -> float:
        return float(self._events[0].elapsed_time(self._events[1])) / 1e3

    def wait(self) -> None:
        self._torch.cuda.current_stream().synchronize()


class _CudaClock(_Clock):
    """Events on TVM's stream, by the CUDA runtime that TVM has loaded."""

    def __init__(self) -> None:
        import tvm_ffi

        from collage.measure.device_events import runtime_library

        self._library = ctypes.CDLL(runtime_library())
        self._stream = ctypes.c_void_p(int(tvm_ffi.get_raw_stream(tvm_ffi.device("cuda", 0))))
        self._events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for event in self._events:
            self._call("cudaEventCreate", ctypes.byref(event))

    def mark(self, position: int) -> None:
        self._call("cudaEventRecord", self._events[position], self._stream)

    def between(self) -> float:
        milliseconds = ctypes.c_float()
        self._call("cudaEventElapsedTime", ctypes.byref(milliseconds), *self._events)
        return milliseconds.value / 1e3

    def wait(self) -> None:
        self._call("cudaStreamSynchronize", self._stream)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} gave CUDA error {status}")


if __name__ == "__main__":
    main()
