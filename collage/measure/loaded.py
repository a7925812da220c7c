"""An artifact in the timing process: loaded, fed, checked, timed once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.runtime.vm import VirtualMachine

from collage.measure import instrument
from collage.measure.artifact import Artifact
from collage.measure.probe import SHAPE
from collage.measure.protocol import Protocol
from collage.runtime import engines


class LoadedArtifact:
    """One rival, ready to run; `watched` ones also call by call."""

    def __init__(
        self, artifact: Artifact, inputs: list[Any], waker: LoadedArtifact | None = None, watched: bool = False
    ) -> None:
        for blob in artifact.blobs:
            run = engines.create(blob.engine, Path(blob.path).read_bytes(), dict(blob.options))
            tvm_ffi.register_global_func(blob.symbol, run, override=True)
        library = tvm.runtime.load_module(artifact.library)
        self.vm = VirtualMachine(library, tvm.cpu())
        # An instrument cannot be taken out of a virtual machine again, so that a second one has it. It is made now: it
        # finds its engines by name, and the next rival may have others of the same names.
        self._watched = VirtualMachine(library, tvm.cpu()) if watched else None
        self.inputs = inputs
        self._arguments = [*inputs, *(tvm.runtime.tensor(np.load(path)) for path in artifact.weights)]
        self._main = self.vm["main"]
        self._waker = waker

    def call(self) -> None:
        """Run once, for its effect on threads."""
        self._main(*self._arguments)

    def run(self) -> list[Any]:
        """The outputs, as arrays."""
        result = self._main(*self._arguments)
        return [np.array(np.from_dlpack(t)) for t in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]

    def time_once(self, protocol: Protocol, threads: int) -> float:
        """Seconds of one run: of its kernels, inside the virtual machine, or of the whole call, as the protocol
        says.
        """
        if protocol.weights == "cold":
            instrument.evict(protocol.evict_bytes, threads)
            if self._waker is not None:
                self._waker.call()
            instrument.touch(self.inputs)
        if protocol.span == "call":
            begin = time.perf_counter()
            self._main(*self._arguments)
            return time.perf_counter() - begin
        found = instrument.spans(self.vm, lambda: self._main(*self._arguments))
        return found[-1].end - found[0].begin if found else 0.0

    def watch_once(self) -> list[instrument.Span]:
        """Run once with a stopwatch around every call that the virtual machine makes."""
        assert self._watched is not None
        main = self._watched["main"]
        return instrument.spans(self._watched, lambda: main(*self._arguments))


class Wakers:
    """The probes that this process has loaded: one per backend, for all candidates."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, ...], LoadedArtifact] = {}

    def of(self, artifact: Artifact) -> LoadedArtifact | None:
        """What wakes the threads of the artifact's backend."""
        if artifact.waker is None:
            return None
        key = (artifact.waker.library, *(blob.path for blob in artifact.waker.blobs))
        if key not in self._loaded:
            self._loaded[key] = LoadedArtifact(artifact.waker, [tvm.runtime.tensor(np.ones(SHAPE, "float32"))])
        return self._loaded[key]
