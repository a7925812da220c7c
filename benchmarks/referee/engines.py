"""Engines by their own APIs on a network of the benchmark, each process stopped unless it is asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from benchmarks.referee.process import Contestant, Entry
from benchmarks.workloads import build, random_inputs


@contextmanager
def engines_on(network: str, kinds: Mapping[str, str], threads: int = 2) -> Iterator[dict[str, Contestant]]:
    """Name -> its process, of each name and kind (`benchmarks.referee.contestant.KINDS`), on the same random inputs."""
    proto = build(network)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, inputs = Path(folder) / f"{network}.onnx", Path(folder) / "inputs.npz"
        model.write_bytes(proto.SerializeToString(deterministic=True))
        np.savez(inputs, **random_inputs(proto, 0))  # type: ignore[arg-type]
        running = {}
        for name, kind in kinds.items():
            running[name] = Contestant.start(Entry(name, kind, model), inputs, threads)
            stack.callback(running[name].close)
        yield running
