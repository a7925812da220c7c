"""Copy costs: the time to copy a tensor from one device to another, measured for every ordered pair.

A copy is timed as the virtual machine makes it: it allocates memory on the other device, transfers, and waits. Sizes
are those of `collage.measure.transitions`. The latency of a size is the median of its samples. Measuring takes a few
milliseconds, so it is done anew for every search.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import tvm

from collage.cost.transition import Pair, Transition
from collage.runtime.devices import device_of

#: Bytes of the tensors.
SIZES = (1 << 16, 1 << 19, 1 << 21)
_SAMPLES = 15


def copy_costs(devices: Sequence[str]) -> dict[Pair, Transition]:
    """What a copy costs, by (from, to).

    Raises
    ------
    CompiledModelError
        This machine has no such device.
    """
    found = {device: device_of(device) for device in devices}
    return {(a, b): Transition.through(_points(found[a], found[b])) for a, b in permutations(devices, 2)}


def _points(source: tvm.runtime.Device, target: tvm.runtime.Device) -> list[tuple[int, float, float]]:
    """(bytes, seconds, half-width of the interval) of each size."""
    points = []
    for size in SIZES:
        tensor = tvm.runtime.tensor(np.zeros(size // 4, np.float32), source)
        samples = sorted(_seconds(tensor, source, target) for _ in range(_SAMPLES + 3))[:_SAMPLES]
        quartiles = statistics.quantiles(samples, n=4)
        half = (quartiles[2] - quartiles[0]) / _SAMPLES**0.5
        points.append((size, statistics.median(samples), half))
    return points


def _seconds(tensor: tvm.runtime.Tensor, source: tvm.runtime.Device, target: tvm.runtime.Device) -> float:
    source.sync()
    started = time.perf_counter()
    tensor.copyto(target)
    target.sync()
    source.sync()
    return time.perf_counter() - started
