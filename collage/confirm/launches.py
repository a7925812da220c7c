"""What launches do to partitions on an accelerator.

The host issues one call after another while the device works. If issuing takes longer than running, the device waits,
and the host's speed limits the network: it is launch-bound. A CUDA graph issues many calls at once; larger partitions
have fewer calls.

To be watched, the calls of a graph are launched one by one. Each then begins on an idle device, which takes it longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from collage.confirm.confirmation import Confirmation

#: A network counts as launch-bound when its kernels take less than this share of its latency.
_BUSY = 0.8
#: Of what a partition takes when it is launched by itself, this much is left at least.
_LEAST = 0.1


def without_launches(parts: Sequence[float], latency: float) -> tuple[float, ...]:
    """Seconds of partitions that were launched one by one, as they are in a graph that takes `latency` seconds.

    What a launch adds is the same for all: what makes the parts add up to more than the whole, in equal shares (1.5 us
    on an H200, where 57 partitions of ResNet-50 add up to 409 us, and the network takes 322).
    """
    excess = max(0.0, sum(parts) - latency) / max(1, len(parts))
    return tuple(max(part - excess, _LEAST * part) for part in parts)


def launch_bound(confirmation: Confirmation) -> tuple[int, ...]:
    """Which partitions of the plan that ships, by number, the host takes longer to issue than the device to run."""
    shipped = confirmation.of(confirmation.shipped)
    if len(shipped.launch_seconds) != len(shipped.partition_seconds):
        return ()
    both = zip(shipped.launch_seconds, shipped.partition_seconds, strict=True)
    return tuple(number for number, (issue, run) in enumerate(both) if issue > run)


def launch_notes(confirmation: Confirmation | None) -> tuple[str, ...]:
    """What a plan says of its launches: nothing where the device is kept busy, and on a CPU."""
    if confirmation is None:
        return ()
    shipped = confirmation.of(confirmation.shipped)
    bound = launch_bound(confirmation)
    running = sum(shipped.partition_seconds)
    if not bound or not shipped.latency.is_finite or running >= _BUSY * shipped.latency.seconds:
        return ()
    return (
        f"launch-bound: its kernels take {running * 1e3:.3f} of {shipped.latency.seconds * 1e3:.3f} ms; "
        f"{len(bound)} of {len(shipped.launch_seconds)} partitions are run faster than the host issues them",
    )
