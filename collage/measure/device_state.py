"""State of a GPU while it is timed, as NVML reports it (package nvidia-ml-py): clock, power, why the clock is low.

A GPU lowers its clock when it is hot, or idle, or shares its power budget, so a latency without these numbers cannot be
compared.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

from collage.runtime.cuda.device import open_nvml

#: Bits of NVML's reasons for a clock below the highest.
REASONS: tuple[tuple[int, str], ...] = (
    (0x1, "idle"),
    (0x2, "clocks were set"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "group of devices"),
    (0x20, "heat"),
    (0x40, "heat, by hardware"),
    (0x80, "power brake"),
    (0x100, "display"),
)


@dataclass(frozen=True)
class DeviceState:
    """A device at one moment.

    Attributes
    ----------
    sm_mhz
        Clock of the multiprocessors.
    watts
        Power that is drawn.
    reasons
        Why the clock is not the highest; none where it is.
    """

    sm_mhz: float
    watts: float
    reasons: tuple[str, ...]


def device_state() -> DeviceState | None:
    """The state of the device that is used, now; None where NVML is missing or does not report it."""
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        handle = _handle(nvml)
        bits = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        reasons = tuple(name for bit, name in REASONS if bits & bit)
        clock = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        return DeviceState(clock, float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3, reasons)
    except (nvml.NVMLError, ValueError, AttributeError) as error:
        logging.getLogger(__name__).debug("NVML does not report the device's state: %s", error)
        return None


def sm_frequency() -> float | None:
    """MHz of the device that is used, now; None where NVML is missing or does not report it."""
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        return float(nvml.nvmlDeviceGetClockInfo(_handle(nvml), nvml.NVML_CLOCK_SM))
    except (nvml.NVMLError, ValueError) as error:
        logging.getLogger(__name__).debug("NVML does not report the clock: %s", error)
        return None


def _handle(nvml: Any) -> Any:
    """NVML's handle of the first visible device, which may be named by its number or in other ways."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    by_uuid = first.startswith(("GPU-", "MIG-"))
    return nvml.nvmlDeviceGetHandleByUUID(first) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(int(first))
