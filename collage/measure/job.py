"""Messages between the tuning process and its helpers: jobs and tasks one way, events the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collage.measure.artifact import Artifact
from collage.measure.conditions import Conditions
from collage.measure.faults import Failure
from collage.measure.protocol import Protocol


@dataclass(frozen=True)
class Job:
    """Artifacts to be timed interleaved on the same inputs: alternatives for one sub-graph, or plans of one network.

    Attributes
    ----------
    artifacts
        What is timed. Events name an artifact by its position here.
    inputs, expected
        Paths of `.npy` files: the inputs, and the outputs of a correct artifact.
    protocol
        How to time.
    threads
        Number of threads of the deployment.
    device
        The kind of device that all of them run on.
    """

    artifacts: tuple[Artifact, ...]
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    protocol: Protocol
    threads: int
    device: str = "cpu"


@dataclass(frozen=True)
class Task:
    """A function that is to be called in a compiling process.

    Attributes
    ----------
    paths
        `sys.path` of the tuning process.
    call
        The function and its argument, pickled.
    """

    paths: tuple[str, ...]
    call: bytes


@dataclass(frozen=True)
class Ready:
    """The process has come up: a timing process with its clock and its device, and loads artifacts from now on. What
    comes before may take long, and no artifact is the cause.
    """


@dataclass(frozen=True)
class Begin:
    """The process starts a stage of one artifact. If it hangs or dies now, that artifact is the cause."""

    artifact: int
    stage: str


@dataclass(frozen=True)
class Failed:
    """One artifact does not compile, does not load, does not run, or gives wrong numbers."""

    artifact: int
    failure: Failure


@dataclass(frozen=True)
class Timed:
    """The samples of one artifact, in seconds, why sampling stopped, and what the machine was like meanwhile."""

    artifact: int
    samples: tuple[float, ...]
    reason: str
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True)
class Returned:
    """What the function of a task has returned."""

    value: Any


@dataclass(frozen=True)
class Retired:
    """The timing process ends itself, because nothing can run in it any more. Artifacts without a report are to be run
    in another one.
    """

    reason: str


@dataclass(frozen=True)
class Done:
    """The job is finished."""


Event = Ready | Begin | Failed | Timed | Returned | Retired | Done
