"""Convolutions of drawn shapes give with their schedule what they give without: tiles, pieces and padding meet many
remainders.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op as R
from tvm_partitions import Spec, f, partition, random_arrays

from collage.backends.tvm.lower import cpu_target, lower

Drawn = tuple[list[Spec], Callable[..., Any]]


def transposed(rng: random.Random) -> Drawn:
    image, kernel, stride = rng.choice((1, 4, 7, 13, 28, 68)), rng.choice((2, 3, 4, 5)), rng.choice((1, 2, 2, 3))
    channels, out = rng.choice((3, 16, 64)), rng.choice((3, 6, 10, 14, 18, 22, 26, 30, 50))
    padding = (rng.randrange(0, kernel // 2 + 1 if image > 1 else 1),) * 2
    specs = [f(1, channels, image, image), f(channels, out, kernel, kernel)]
    return specs, lambda bb, x, w: R.nn.conv2d_transpose(x, w, strides=(stride,) * 2, padding=padding)


def depthwise(rng: random.Random) -> Drawn:
    channels, image, kernel = rng.choice((24, 100, 512)), rng.choice((2, 3, 7, 14, 33)), rng.choice((2, 3, 5, 7))
    options = {"strides": (rng.choice((1, 2)),) * 2, "padding": (kernel // 2,) * 2, "groups": channels}
    specs = [f(1, channels, image, image), f(channels * rng.choice((1, 1, 2)), 1, kernel, kernel)]
    return specs, lambda bb, x, w: R.nn.conv2d(x, w, **options)


def grouped(rng: random.Random) -> Drawn:
    groups, width, out = rng.choice((2, 3, 32)), rng.choice((2, 4, 12)), rng.choice((1, 3, 5, 7, 14))
    image, kernel = rng.choice((1, 2, 5, 14, 28)), rng.choice((1, 3))
    options = {"strides": (rng.choice((1, 2)),) * 2, "padding": (kernel // 2,) * 2, "groups": groups}
    specs = [f(1, groups * width, image, image), f(groups * out, width, kernel, kernel)]
    return specs, lambda bb, x, w: R.nn.conv2d(x, w, **options)


@pytest.mark.parametrize("kind", [transposed, depthwise, grouped])
@pytest.mark.parametrize("seed", range(8))
def test_scheduled_and_plain_kernels_agree(kind: Callable[[random.Random], Drawn], seed: int) -> None:
    specs, body = kind(random.Random(f"{kind.__name__}.{seed}"))
    arrays, target = random_arrays(specs), cpu_target(2)
    results = []
    for scheduled in (True, False):
        lowered = lower(partition(specs, body), target, scheduled=scheduled)
        executable = tvm.compile(lowered, target=target, relax_pipeline=tvm.transform.Sequential([]))
        machine = relax.VirtualMachine(executable, tvm.cpu())
        results.append(machine["main"](*[tvm.runtime.tensor(array) for array in arrays]).numpy())
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)
