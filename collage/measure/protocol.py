"""Protocol: how a latency is taken. It is part of every record's key, because another protocol gives another number."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Literal

from collage.runtime.device_info import DeviceInfo, is_host

#: Fields that say how much is sampled, not what a sample is.
_EFFORT = ("min_samples", "max_samples", "relative", "time_limit_s")


@dataclass(frozen=True)
class Protocol:
    """How candidates are timed: from the first to the last kernel inside the virtual machine.

    Attributes
    ----------
    weights
        "cold" overwrites the caches before every sample, as the rest of the network does between two calls, wakes the
        backend's threads and brings the activations back, which their producer has just written; "hot" repeats without
        that.
    warmup
        Rounds that are not counted; on the host without emptying the caches, which takes longer than most candidates.
    min_samples, max_samples
        Of every candidate that is not stopped early. Sessions differ by more than samples of one do (docs/RESULTS.md,
        "Time to a plan").
    relative
        Stop when the half-width of the median's 95% confidence interval is below this share of the median.
    time_limit_s
        Seconds that one job may be sampled for once all artifacts have `min_samples`.
    slow_factor
        An artifact this many times slower than the fastest is stopped with the samples it has.
    evict_bytes
        Bytes overwritten before a cold sample, by all threads together: the network's working set, or a quarter more
        than the caches hold where that is less.
    tolerance
        Largest absolute error over largest absolute reference value; beyond it the candidate is Invalid.
    version
        Of the procedure itself.
    """

    weights: Literal["cold", "hot"] = "cold"
    warmup: int = 2
    min_samples: int = 7
    max_samples: int = 15
    relative: float = 0.01
    time_limit_s: float = 0.4
    slow_factor: float = 3.0
    evict_bytes: int = 64 << 20
    tolerance: float = 1e-4
    version: int = 4

    def as_dict(self) -> dict[str, Any]:
        """For keys and records."""
        return asdict(self)

    @property
    def warming(self) -> Protocol:
        """How rounds are run that are not counted."""
        return replace(self, weights="hot")


@dataclass(frozen=True)
class DeviceProtocol(Protocol):
    """How something is timed on an accelerator, by events on its stream (`collage.measure.device_clock`).

    Before every run, `weights="cold"` overwrites the last-level cache, copies the inputs into it again, and runs the
    same code once on other weights; "hot" repeats without that, after one run that does not count. Either way so much
    is queued before the run that the host has issued all of its launches before the first of them begins: what is timed
    is the device.

    Attributes
    ----------
    clock
        What takes the time.
    batch_s
        Seconds of device time that one sample holds at least: runs are repeated, because events resolve half a
        microsecond.
    batch_limit
        Runs that one sample holds at most.
    evict_bytes
        Bytes of device memory overwritten before a cold run, at least twice the last-level cache.
    """

    clock: str = "replays of CUDA graphs"
    batch_s: float = 50e-6
    batch_limit: int = 8
    max_samples: int = 31
    evict_bytes: int = 256 << 20
    version: int = 5

    @property
    def warming(self) -> Protocol:
        """The same: what is replayed was captured for it."""
        return self


@dataclass(frozen=True)
class BoardProtocol(Protocol):
    """How something is timed on a board: by the time evaluator of the TVM that runs there, one call a sample, from the
    beginning of `main` to its end in the virtual machine.

    Before every sample it is called once more, which wakes its threads. With `weights="cold"` the caches are then
    overwritten, those inputs included that the call has left there; "hot" leaves all as it is.

    Attributes
    ----------
    clock
        What takes the time.
    """

    clock: str = "time evaluator over RPC"
    version: int = 1


def candidate_protocol(device: DeviceInfo, working_set: int = 0) -> Protocol:
    """How candidates are timed on a device, unless the user says otherwise.

    Parameters
    ----------
    working_set
        Bytes that a call of the candidates' network touches; 0 where that is not known: all caches are overwritten.
    """
    if device.kind != "cpu":
        return DeviceProtocol()
    kind = BoardProtocol if device.runtime else Protocol
    everything = device.cache + device.cache // 4 or Protocol.evict_bytes
    return kind(evict_bytes=min(everything, working_set or everything))


@cache
def whatever_sampled(protocol: str) -> str:
    """A protocol as it stands in a key, without how much is sampled: measurements of all efforts have it in common."""
    return json.dumps({**json.loads(protocol), **dict.fromkeys(_EFFORT, 0)}, sort_keys=True)


def whatever_evicted(protocol: str) -> str:
    """The same, without `evict_bytes` either: networks of all sizes have it in common."""
    return json.dumps({**json.loads(whatever_sampled(protocol)), "evict_bytes": 0}, sort_keys=True)


#: Latency of a consumer right after its producer. Whatever ran before is warm, as in a network that runs again and
#: again; a difference of two medians needs many samples.
_TRANSITIONS: dict[str, Any] = {
    "min_samples": 15,
    "max_samples": 51,
    "relative": 0.002,
    "time_limit_s": 0.4,
    "slow_factor": 100.0,
    "version": 1,
}


def transition_protocol(device: str) -> Protocol:
    """How transitions are timed on a kind of device."""
    if not is_host(device):
        return DeviceProtocol(**_TRANSITIONS)
    return Protocol(weights="hot", evict_bytes=0, **_TRANSITIONS)
