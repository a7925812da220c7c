"""One contestant of a race, in a process of its own: a compiled model of ours, or a peer.

A process each, because two compilers' libraries need not get along, because one that crashes must not end the race, and
because each is then deployed as its users deploy it. Their turns are interleaved: a contestant between its turns waits
on a pipe, and leaves processor and device alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu import peers
from benchmarks.gpu.peers import PEERS

#: The contestant that computes in float64 and is not timed.
REFERENCE = "reference"
#: Runs at the beginning of every turn that are not counted.
_DISCARD = 3


@dataclass(frozen=True)
class Load:
    """Which contestant, on what.

    Attributes
    ----------
    name
        Of a peer, or anything else for a model of ours.
    network, dtype, batch
        What `benchmarks.workloads.build` is asked for.
    library
        Of a model of ours: path of the compiled model.
    device
        "cuda" or "cpu".
    precision
        Of float32 products, "float32" or "tf32".
    seed
        Of the inputs.
    """

    name: str
    network: str
    dtype: str
    batch: int
    library: str = ""
    device: str = "cuda"
    precision: str = "float32"
    seed: int = 1

    @property
    def torch(self) -> bool:
        """Whether it runs in PyTorch."""
        return self.name == REFERENCE or self.name in PEERS


@dataclass(frozen=True)
class Loaded:
    """It runs; `outputs` are those of one run, in the network's order."""

    outputs: tuple[np.ndarray, ...]
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Timed:
    """One turn, in seconds: of each run from the call until the device is done, and between events on the device around
    it; and per run when all are started without waiting. `state` is what the device says of itself at the end.
    """

    call: tuple[float, ...]
    device: tuple[float, ...]
    pipelined: float
    state: dict[str, Any] | None = None


def contestant(asked: Load) -> Generator[Loaded | Timed | None, Any, None]:
    """Answer None when all is prepared that needs no device; `Loaded` to the next message, which grants the device to
    this contestant alone; then `Timed` to each number of runs. For `benchmarks.gpu.isolated`.
    """
    if asked.torch:
        import benchmarks.onnx_torch
    else:
        import collage.runtime  # noqa: F401
    model, inputs = network_of(asked)
    yield None
    begin = time.monotonic()
    if asked.name == REFERENCE:
        exact = peers.reference(model, inputs, asked.device)
        yield Loaded(tuple(exact), time.monotonic() - begin)
        return
    run = runner(asked, model, inputs)
    if asked.torch:
        outputs, versions = tuple(map(benchmarks.onnx_torch.array_of, run())), peers.versions()
        clock: _Clock = _TorchClock() if asked.device == "cuda" else _Clock()
    else:
        outputs, versions = tuple(np.array(t.numpy()) for t in run()), {}
        clock = _CudaClock() if asked.device == "cuda" else _Clock()
    runs = yield Loaded(outputs, time.monotonic() - begin, versions)
    while True:
        runs = yield _turn(run, clock, runs)


def network_of(asked: Load) -> tuple[Any, list[np.ndarray]]:
    """The network in ONNX, and its inputs."""
    from benchmarks.workloads import build, random_inputs

    model = build(asked.network, dtype=asked.dtype, batch=asked.batch)
    return model, list(random_inputs(model, seed=asked.seed).values())


def runner(asked: Load, model: Any, inputs: Sequence[np.ndarray]) -> Callable[[], Any]:
    """What runs the network once, compiled and warm, on inputs that are on the device."""
    if asked.torch:
        return peers.peer(asked.name, model, inputs, asked.device, asked.precision)
    return _compiled(asked, inputs)


def _compiled(asked: Load, inputs: Sequence[np.ndarray]) -> Callable[[], Any]:
    """A model of ours, from its file, as a deployed process loads it."""
    import tvm

    import collage.runtime

    model = collage.runtime.load(asked.library)
    assert isinstance(model, collage.runtime.CompiledModel)
    device = tvm.cuda(0) if asked.device == "cuda" else tvm.cpu()
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]
    for _ in range(3):
        model.run(tensors)
    return lambda: model.run(tensors)


def _turn(run: Callable[[], Any], clock: _Clock, runs: int) -> Timed:
    for _ in range(_DISCARD):
        run()
    clock.wait()
    call, device = [], []
    for _ in range(runs):
        begin = time.perf_counter()
        clock.mark(0)
        run()
        clock.mark(1)
        clock.wait()
        call.append(time.perf_counter() - begin)
        device.append(clock.between())
    begin = time.perf_counter()
    for _ in range(runs):
        run()
    clock.wait()
    pipelined = (time.perf_counter() - begin) / runs
    return Timed(tuple(call), tuple(device), pipelined, clock.state())


def _device_state() -> dict[str, Any] | None:
    from collage.measure.device_state import device_state

    state = device_state()
    return None if state is None else asdict(state)


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

    def state(self) -> dict[str, Any] | None:
        """What the device says of itself (`collage.measure.device_state`)."""
        return None


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

    def state(self) -> dict[str, Any] | None:
        return _device_state()


class _CudaClock(_Clock):
    """Events on TVM's stream."""

    def __init__(self) -> None:
        from collage.measure import device_events

        self._device = device_events
        self._events = [0, 0]

    def mark(self, position: int) -> None:
        if position == 0:
            self._device.reset()
        self._events[position] = self._device.record()

    def between(self) -> float:
        return self._device.elapsed(*self._events)

    def wait(self) -> None:
        self._device.synchronize()

    def state(self) -> dict[str, Any] | None:
        return _device_state()
