"""Messages: the requests of the tuning process to a contestant's process, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

#: Symbols of a network's calls, in order, and seconds.
Parts = tuple[tuple[str, float], ...]
#: The same calls: symbol, and seconds from the beginning of the first one to the beginning and to the end of each.
Calls = tuple[tuple[str, float, float], ...]
#: The kind of contestant that is a file which Collage exported; all others are names of rivals.
COMPILED = "collage"


@dataclass(frozen=True)
class Load:
    """Load a file; the answer is `Loaded`.

    Attributes
    ----------
    kind
        `COMPILED`, or the name of a rival (`collage.deployed.rivals`).
    path
        Of the exported model, or of the ONNX file.
    inputs
        Paths of `.npy` files, in the order of the network's inputs.
    threads
        Number of threads of the deployment.
    device
        The kind of device that it runs on.
    """

    kind: str
    path: str
    inputs: tuple[str, ...]
    threads: int
    device: str = "cpu"


@dataclass(frozen=True)
class Check:
    """Run once and compare with the `.npy` files; the answer is `Checked`."""

    expected: tuple[str, ...]
    tolerance: float


@dataclass(frozen=True)
class Time:
    """Call for `warm` seconds, once at least, then for `seconds`, `least` times at least; the answer is `Samples`."""

    seconds: float
    least: int
    warm: float


@dataclass(frozen=True)
class Watch:
    """Run so often with a stopwatch around each call of the virtual machine; the answer is `Watched`."""

    runs: int


@dataclass(frozen=True)
class Run:
    """Run once on each of several samples, which are paths of `.npy` files, and write what comes out to a folder; the
    answer is `Ran`.
    """

    samples: tuple[tuple[str, ...], ...]
    folder: str


Request = Load | Check | Time | Watch | Run


@dataclass(frozen=True)
class Loaded:
    """It is loaded: the seconds that took, and the bytes of memory that the process holds."""

    seconds: float
    resident: int


@dataclass(frozen=True)
class Checked:
    """What is wrong with the numbers, "" when nothing is; seconds of the call; bytes of memory after it."""

    problem: str
    seconds: float
    resident: int


@dataclass(frozen=True)
class Samples:
    """Latencies of calls that followed each other, in seconds."""

    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Watched:
    """Median seconds of each call, to the beginning of the next one, and on an accelerator what the host took to issue
    it; and when each of them begins and ends.
    """

    parts: Parts
    launches: Parts
    calls: Calls = ()


@dataclass(frozen=True)
class Ran:
    """Paths of the `.npy` files of each sample's outputs."""

    outputs: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Failed:
    """The request cannot be answered, with the reason; the contestant is out."""

    reason: str


Answer = Loaded | Checked | Samples | Watched | Ran | Failed
