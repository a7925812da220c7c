"""What a race and its contestants say to each other (`benchmarks.gpu_race`, `benchmarks.gpu_contestant`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

#: The contestant that computes in float64 and is not timed.
REFERENCE = "reference"


@dataclass(frozen=True)
class Load:
    """Become a contestant: prepare what needs no device, and wait for `Proceed`.

    Attributes
    ----------
    name: of a peer, or anything else for a model of ours.
    network, dtype, batch: what `benchmarks.workloads.build` is asked for.
    library: of a model of ours: path of the compiled model.
    device: "cuda" or "cpu".
    precision: of float32 products, "float32" or "tf32".
    seed: of the inputs.
    """

    name: str
    network: str
    dtype: str
    batch: int
    library: str = ""
    device: str = "cuda"
    precision: str = "float32"
    seed: int = 1


@dataclass(frozen=True)
class Prepared:
    """The network and libraries are in memory; the device has not been touched."""


@dataclass(frozen=True)
class Proceed:
    """Load onto the device, which nobody else uses meanwhile: what is tried out there is not disturbed."""


@dataclass(frozen=True)
class Loaded:
    """It runs; `outputs` are what it gave, in the network's order."""

    outputs: tuple[np.ndarray, ...]
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Turn:
    """Run a number of times."""

    runs: int
    discard: int = 3


@dataclass(frozen=True)
class Timed:
    """One turn, in seconds: of each run from the call until the device is done, and between events on the device around
    it; and per run when all are started without waiting.
    """

    call: tuple[float, ...]
    device: tuple[float, ...]
    pipelined: float


@dataclass(frozen=True)
class Failed:
    """It does not load or run."""

    reason: str
