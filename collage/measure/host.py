"""Host: a digest that tells hosts apart without their names, because many machines may have one fingerprint."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Any

from collage.runtime.device_info import DeviceInfo

_MACHINE_ID = Path("/etc/machine-id")


@cache
def host_id() -> str:
    """Twelve hexadecimal digits that no other host has, and that stay when it reboots. Containers are hosts."""
    try:
        machine = _MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    return hashlib.sha256(f"collage {machine} {platform.node()}".encode()).hexdigest()[:12]


def measured_on(device: DeviceInfo, host: str = "") -> dict[str, Any]:
    """A device as an observation has it: with the host, which is this one where none is named."""
    return {**device.as_dict(), "host": host or host_id()}
