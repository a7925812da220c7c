"""The program of a contestant's process: an exported model behind `collage.runtime`, or a rival behind its own API.

`collage.deployed.process` starts it, as a `collage.measure.helper`. It answers one request after the other. A compiled
model is called as its users call it, on arrays as they come. Its partitions are watched by a second virtual machine,
which exists only while they are watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from collage.arrays import read_array, write_arrays
from collage.deployed import rivals
from collage.deployed.messages import (
    COMPILED,
    Answer,
    Check,
    Checked,
    Failed,
    Load,
    Loaded,
    Ran,
    Request,
    Run,
    Samples,
    Time,
    Watch,
    Watched,
)
from collage.errors import last_line
from collage.measure.check import wrong_numbers
from collage.measure.framing import receive, send
from collage.measure.helper import channels, run_and_exit
from collage.runtime.device_info import is_host

if TYPE_CHECKING:
    from collage.measure.clock import Clock
    from collage.runtime.model import CompiledModel


class Server:
    """What is done for each request. One contestant in its life: `Load` comes first."""

    def __init__(self) -> None:
        self._request: Load
        self._inputs: Sequence[np.ndarray] = ()
        self._call: Callable[[], Sequence[Any]]
        self._model: CompiledModel
        self._clock: Clock | None = None

    def answer(self, request: Request) -> Answer:
        """The answer to a request. Never raises for what a contestant does."""
        try:
            if isinstance(request, Load):
                return self._load(request)
            if isinstance(request, Check):
                return self._check(request)
            if isinstance(request, Run):
                return self._run(request)
            return self._time(request) if isinstance(request, Time) else self._watch(request)
        except Exception as error:  # whatever an engine raises puts this contestant out, with the reason
            kind, said = type(error).__name__, last_line(error)
            return Failed(f"does not run: {said if said.startswith(kind) else f'{kind}: {said}'}"[:500])

    def _load(self, request: Load) -> Answer:
        self._request = request
        inputs = self._inputs = [read_array(path) for path in request.inputs]  # engines work on their memory
        begin = time.perf_counter()
        if request.kind == COMPILED:
            self._call = self._compiled(inputs)
        else:
            self._call = rivals.open_rival(request.kind, request.path, inputs, request.threads)
        return Loaded(time.perf_counter() - begin, _resident())

    def _compiled(self, inputs: Sequence[np.ndarray]) -> Callable[[], Sequence[Any]]:
        import collage.runtime
        from collage.runtime.model import CompiledModel

        model = collage.runtime.load(self._request.path)
        assert isinstance(model, CompiledModel), "plans of one shape take part"
        self._model = model
        if not is_host(self._request.device):
            from collage.measure.clock import clock_of

            self._clock = clock_of(self._request.device)
        arguments = self._on_device(inputs)

        def call() -> Sequence[Any]:
            return _listed(model(*arguments))

        return call

    def _on_device(self, arrays: Sequence[np.ndarray]) -> Sequence[Any]:
        if self._request.device == "cpu":
            return arrays
        from collage.runtime.devices import device_of, upload

        return [upload(array, device_of(self._request.device)) for array in arrays]

    def _run(self, request: Run) -> Answer:
        """Of compiled models only."""
        written = []
        for number, sample in enumerate(request.samples):
            found = _arrays(_listed(self._model(*self._on_device([read_array(path) for path in sample]))))
            written.append(write_arrays(found, Path(request.folder), f"{number}-"))
        return Ran(tuple(written))

    def _check(self, request: Check) -> Answer:
        begin = time.perf_counter()
        outputs = _arrays(self._call())
        took = time.perf_counter() - begin
        expected = [read_array(path) for path in request.expected]
        return Checked(wrong_numbers(outputs, expected, request.tolerance) or "", took, _resident())

    def _time(self, request: Time) -> Answer:
        until = time.perf_counter() + request.warm
        while True:
            self._call()
            if time.perf_counter() >= until:
                break
        samples: list[float] = []
        until = time.perf_counter() + request.seconds
        while len(samples) < request.least or time.perf_counter() < until:
            samples.append(self._one())
        return Samples(tuple(samples))

    def _one(self) -> float:
        if self._clock is not None:
            return self._clock.time_call(self._call)
        begin = time.perf_counter()
        self._call()
        return time.perf_counter() - begin

    def _watch(self, request: Watch) -> Answer:
        from collage.measure.watching import watch

        return Watched(*watch(self._model, self._request.inputs, request.runs))


def _listed(found: Any) -> Sequence[Any]:
    return found if isinstance(found, (tuple, list)) else [found]


def _arrays(tensors: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(each.numpy() if hasattr(each, "numpy") else each) for each in tensors]


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


def main() -> None:
    """Serve until the other side closes the pipe."""
    requests, answers = channels()
    server = Server()
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, server.answer(request))


if __name__ == "__main__":
    run_and_exit(main)
