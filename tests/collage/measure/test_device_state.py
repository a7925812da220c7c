"""Clock, power and the reasons for a low clock, as NVML reports them."""

from __future__ import annotations

import pytest

from collage.measure import device_state
from collage.measure.device_state import DeviceState


class Nvml:
    """One device at 1980 MHz and 350 W, below its clock for its power and for heat."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"device {index}"

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        return f"device {name}"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        assert (handle, clock) == ("device 2", 1)
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 350_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        if self.refuses:
            raise self.NVMLError("not supported")
        return 0x24


def test_a_device_says_its_clock_its_power_and_why_the_clock_is_low(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr(device_state, "open_nvml", Nvml)
    assert device_state.device_state() == DeviceState(1980.0, 350.0, ("power cap", "heat"))
    assert device_state.sm_frequency() == 1980.0


def test_what_a_device_does_not_say_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setattr(device_state, "open_nvml", lambda: Nvml(refuses=True))
    assert device_state.device_state() is None and device_state.sm_frequency() == 1980.0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "the first")
    assert device_state.sm_frequency() is None
    monkeypatch.setattr(device_state, "open_nvml", lambda: None)
    assert device_state.device_state() is None and device_state.sm_frequency() is None
