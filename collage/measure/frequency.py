"""The clock frequency of a CUDA device's multiprocessors, and what a measurement says when it was not steady.

A GPU lowers its clock when it is hot, or idle, or shares its power budget: the same kernel then takes longer. NVML
tells the frequency (package nvidia-ml-py); without it only the spread of the samples speaks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from collage.measure.statistics import Summary
from collage.runtime.cuda.device import open_nvml

#: A clock that changes by more, or samples that spread by more, make a measurement unstable.
STEADY_CLOCK, STEADY_SAMPLES = 0.03, 0.05
UNSTABLE = "unstable"


def sm_frequency() -> float | None:
    """MHz of the device that is used, now; None where NVML is not there or does not tell."""
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
        by_uuid = first.startswith(("GPU-", "MIG-"))
        handle = nvml.nvmlDeviceGetHandleByUUID(first) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(int(first))
        return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    except (nvml.NVMLError, ValueError) as error:  # the driver does not tell, or the device is named in another way
        logging.getLogger(__name__).debug("NVML does not tell the clock: %s", error)
        return None


def remark(reason: str, samples: Sequence[float], before: float | None, after: float | None) -> str:
    """The reason why sampling stopped, with the clock during it, and a word when the measurement is not to be trusted.

    Parameters
    ----------
    before, after: MHz; None where they are not known.
    """
    doubts, parts = [], [reason]
    if before and after:
        parts.append(f"SM clock {before:.0f} MHz" if before == after else f"SM clock {before:.0f} to {after:.0f} MHz")
        if abs(after - before) > STEADY_CLOCK * before:
            doubts.append("the clock changed")
    if len(samples) > 1 and Summary.of(samples).relative_spread > STEADY_SAMPLES:
        doubts.append(f"the samples spread by {Summary.of(samples).relative_spread:.0%}")
    if doubts:
        parts.append(f"{UNSTABLE}: {' and '.join(doubts)}")
    return "; ".join(part for part in parts if part)
