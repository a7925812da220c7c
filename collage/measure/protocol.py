"""Protocol: how a latency is taken. It is part of every record's key: another protocol, another number."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Protocol:
    """How candidates are timed.

    Attributes
    ----------
    weights: "cold" overwrites the caches before every sample, wakes the backend's threads and brings the activations
        back, as in a network where weights stream from memory and the producer has just written its result; "hot"
        repeats without that.
    warmup: rounds that are not counted.
    discard: runs at the beginning of every turn that are not counted: what the rival before left in the caches, and
        threads asleep, would otherwise be charged to whoever comes next.
    min_samples, max_samples: of every candidate that is not stopped early.
    relative: stop when the half-width of the median's 95% confidence interval is below this share of the median.
    time_limit_s: seconds that one group of rivals may be sampled for once all have `min_samples`.
    slow_factor: a candidate this many times slower than its fastest rival is stopped with the samples it has.
    evict_bytes: bytes overwritten per core before a cold sample.
    span: "kernels" times from the first to the last kernel inside the virtual machine; "call" times the whole call,
        from Python, and every turn has one more run, with a stopwatch around each of its calls; rivals that may
        still be the fastest are sampled beyond the limits, until they are told apart.
    tolerance: largest absolute error over largest absolute reference value; beyond it the candidate is Invalid.
    version: of the procedure itself.
    """

    weights: Literal["cold", "hot"] = "cold"
    warmup: int = 2
    discard: int = 0
    min_samples: int = 7
    max_samples: int = 31
    relative: float = 0.01
    time_limit_s: float = 0.4
    slow_factor: float = 3.0
    evict_bytes: int = 8 << 20
    span: Literal["kernels", "call"] = "kernels"
    tolerance: float = 1e-4
    version: int = 3

    def as_dict(self) -> dict[str, Any]:
        """For keys and records."""
        return asdict(self)


#: End-to-end latency of whole networks: repeated calls as in a deployed process, many samples, rivals interleaved.
END_TO_END = Protocol(
    weights="hot", span="call", warmup=2, discard=2, min_samples=15, max_samples=75, time_limit_s=20.0, version=6
)
