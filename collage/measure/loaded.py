"""Loaded: an artifact in the timing process: loaded, given inputs, checked, timed once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.runtime.vm import VirtualMachine

from collage.arrays import read_array
from collage.measure.artifact import Artifact
from collage.measure.clock import clock_of
from collage.measure.protocol import Protocol
from collage.runtime import engines
from collage.runtime.device_info import is_host
from collage.runtime.devices import device_of, download, upload


class LoadedArtifact:
    """An artifact that is ready to run.

    Attributes
    ----------
    vm
        The virtual machine.
    inputs, pristine
        Tensors on the device, and copies of them there that nothing writes to; none on the CPU.
    warm_up
        Wakes the threads of the artifact's backend before a cold sample; None leaves them as they are.
    fed
        Whether the warm-up's result is the input instead.
    capturable
        Whether it may be captured in a CUDA graph.
    runs_per_sample, host_seconds, replay, lead
        How a device's clock times it; 0 and None until it has been run.
    """

    def __init__(self, artifact: Artifact, inputs: list[Any], warm_up: LoadedArtifact | None = None) -> None:
        self._artifact = artifact
        for blob in artifact.blobs:
            run = engines.create(blob.engine, Path(blob.path).read_bytes(), dict(blob.options))
            tvm_ffi.register_global_func(blob.symbol, run, override=True)
        device = device_of(artifact.device)
        # On the host it goes with the last reference. On a device graphs may have been captured of its kernels.
        library = tvm_ffi.load_module(artifact.library, keep_module_alive=not is_host(artifact.device))
        self.vm = VirtualMachine(library, device)
        for blob in artifact.blobs:  # the machine has them now
            tvm_ffi.remove_global_func(blob.symbol)
        self.inputs = inputs
        self.pristine = [tensor.copyto(device) for tensor in inputs] if not is_host(artifact.device) else []
        self._arguments = [*inputs, *(upload(read_array(path), device) for path in artifact.weights)]
        self._main = self.vm["main"]
        self.warm_up = warm_up
        self.fed = artifact.fed
        self.capturable = artifact.capturable
        self._clock = clock_of(artifact.device)
        self.runs_per_sample = 0
        self.host_seconds = 0.0
        self.replay: Any = None
        self.lead: Any = None

    def after(self, warm_up: LoadedArtifact | None) -> LoadedArtifact:
        """The same, in the same memory, after another warm-up: what two take differs by the warm-up alone."""
        other = copy.copy(self)
        other.warm_up, other.runs_per_sample, other.host_seconds = warm_up, 0, 0.0
        other.replay = other.lead = None
        other._arguments = [*self.inputs, *self._arguments[len(self.inputs) :]]
        return other

    def twin(self) -> LoadedArtifact:
        """The same code on the same inputs, with weights of its own; itself where it has none."""
        weightless = not self._artifact.weights and not self._artifact.blobs
        return self if weightless else LoadedArtifact(self._artifact, self.inputs)

    def call(self) -> Any:
        """Run once; what it gives stays on the device."""
        return self._main(*self._arguments)

    def feed(self) -> None:
        """Run once, and then the warm-up, whose result is the input of the next run: a backend returns from another."""
        assert self.warm_up is not None
        self.call()
        self._arguments[0] = self.warm_up.call()

    def run(self) -> list[Any]:
        """The outputs, as arrays."""
        result = self._main(*self._arguments)
        return download([result] if isinstance(result, tvm.runtime.Tensor) else result)

    def time_once(self, protocol: Protocol, threads: int) -> float:
        """Seconds of one run of its kernels, inside the virtual machine."""
        return self._clock.time_once(self, protocol, threads)


class WarmUps:
    """The warm-ups that this process has loaded: one per backend, for all candidates."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, ...], LoadedArtifact] = {}

    def of(self, artifact: Artifact) -> LoadedArtifact | None:
        """The artifact's warm-up; None where it has none."""
        if artifact.warm_up is None:
            return None
        key = identity(artifact.warm_up)
        if key not in self._loaded:
            self._loaded[key] = LoadedArtifact(artifact.warm_up, [])
        return self._loaded[key]


def identity(artifact: Artifact) -> tuple[str, ...]:
    """What is loaded for an artifact, whatever its warm-up: its files."""
    return (artifact.library, *artifact.weights, *(blob.path for blob in artifact.blobs))
