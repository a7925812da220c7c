"""Launch-bound partitions: the device finishes their kernels before the host has issued them.

On an accelerator the host issues one call after another while the device works. If issuing takes longer than running,
the device waits, and the host's speed limits the network. A CUDA graph issues many calls at once; larger partitions
have fewer calls.
"""

from __future__ import annotations

from collage.confirm.confirmation import Confirmation

#: A network counts as launch-bound when its kernels take less than this share of its latency.
_BUSY = 0.8


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
