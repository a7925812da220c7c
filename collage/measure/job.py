"""What the tuning process and the timing process say to each other: jobs one way, events the other."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass
from typing import IO, Any

from collage.measure.artifact import Artifact
from collage.measure.protocol import Protocol

#: The calls of a virtual machine in their order: symbol, and median seconds from its beginning to the next one's (of
#: the last one, to its end).
Parts = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Job:
    """Rivals for one sub-graph, timed interleaved on the same inputs.

    Attributes
    ----------
    artifacts: the rivals.
    inputs, expected: paths of `.npy` files; the outputs of a correct rival.
    protocol: how to time.
    threads: number of threads of the deployment.
    device: the kind of device that all of them run on.
    """

    artifacts: tuple[Artifact, ...]
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    protocol: Protocol
    threads: int
    device: str = "cpu"


@dataclass(frozen=True)
class Ready:
    """The timing process has come up, with its clock and its device, and turns to the rivals: what comes before may
    take long, and is nobody's fault.
    """


@dataclass(frozen=True)
class Begin:
    """The timing process starts something with one rival: if it falls silent or dies now, that rival is to blame."""

    rival: int
    stage: str


@dataclass(frozen=True)
class Failed:
    """One rival is out: it does not load, does not run, or gives wrong numbers."""

    rival: int
    reason: str


@dataclass(frozen=True)
class Timed:
    """The samples of one rival, in seconds, and why sampling stopped; and, of a whole network, `Parts`, and on an
    accelerator what the host took to issue each of them, in seconds.
    """

    rival: int
    samples: tuple[float, ...]
    reason: str
    parts: Parts = ()
    launches: Parts = ()


@dataclass(frozen=True)
class Retired:
    """The timing process ends itself: nothing can run in it any more. What it has not reported is to be run in another
    one.
    """

    reason: str


@dataclass(frozen=True)
class Done:
    """The job is finished."""


Event = Ready | Begin | Failed | Timed | Retired | Done


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message, framed by its length."""
    data = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message. Raises EOFError when the other side has gone."""
    header = _exactly(stream, 8)
    return pickle.loads(_exactly(stream, struct.unpack("<Q", header)[0]))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
