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
from collage.measure.protocol import Protocol
from collage.runtime import engines


#: Larger magnitudes are masks, not values.
_MASK = 1e30


class LoadedArtifact:
    """One rival, ready to run."""

    def __init__(self, artifact: Artifact, inputs: list[Any]) -> None:
        for blob in artifact.blobs:
            run = engines.create(blob.engine, Path(blob.path).read_bytes(), dict(blob.options))
            tvm_ffi.register_global_func(blob.symbol, run, override=True)
        self.vm = VirtualMachine(tvm.runtime.load_module(artifact.library), tvm.cpu())
        self.inputs = inputs
        self._arguments = [*inputs, *(tvm.runtime.tensor(np.load(path)) for path in artifact.weights)]
        self._main = self.vm["main"]

    def run(self) -> list[Any]:
        """The outputs, as arrays."""
        result = self._main(*self._arguments)
        return [np.array(np.from_dlpack(t)) for t in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]

    def time_once(self, protocol: Protocol, threads: int) -> float:
        """Seconds of one run: of its kernels, inside the virtual machine, or of the whole call, as the protocol says."""
        if protocol.weights == "cold":
            instrument.evict(protocol.evict_bytes, threads)
            instrument.touch(self.inputs)
        if protocol.span == "call":
            begin = time.perf_counter()
            self._main(*self._arguments)
            return time.perf_counter() - begin
        found = instrument.spans(self.vm, lambda: self._main(*self._arguments))
        return found[-1].end - found[0].begin if found else 0.0


def wrong_numbers(outputs: list[np.ndarray], expected: list[np.ndarray], tolerance: float) -> str | None:
    """Why the outputs are not those of the reference, or None when they are.

    Floats agree when no difference exceeds `tolerance` times the largest magnitude in the reference (masks aside);
    other types agree exactly.
    """
    if len(outputs) != len(expected):
        return f"wrong result: {len(outputs)} outputs instead of {len(expected)}"
    for i, (ours, reference) in enumerate(zip(outputs, expected, strict=True)):
        if ours.shape != reference.shape or ours.dtype != reference.dtype:
            return f"wrong result: output {i} is {ours.dtype}{list(ours.shape)}, not {reference.dtype}{list(reference.shape)}"
        if not np.issubdtype(reference.dtype, np.floating):
            if not np.array_equal(ours, reference):
                return f"wrong result: output {i} differs in {int(np.sum(ours != reference))} of {reference.size} elements"
            continue
        finite = np.isfinite(reference)
        if not np.array_equal(np.isnan(ours), np.isnan(reference)) or not np.array_equal(
            np.where(finite, 0, reference), np.where(np.isfinite(ours), 0, ours), equal_nan=True
        ):
            return f"wrong result: output {i} is not finite where the reference is, or the other way round"
        if not finite.any():
            continue
        values = np.abs(reference[finite].astype(np.float64))
        error = np.abs(ours[finite].astype(np.float64) - reference[finite])
        # Attention masks hold the lowest float32: where they are, only the element itself is the scale.
        ordinary = values[values < _MASK]
        scale = max(float(ordinary.max()) if ordinary.size else 0.0, 1e-6)
        excess = error - tolerance * np.maximum(values, scale)
        if excess.max() > 0:
            worst = float(error[excess.argmax()])
            return f"wrong result: output {i} is off by {worst:.3g} where values reach {scale:.3g} (tolerance {tolerance:g})"
    return None
