"""DeviceInfo: which machine a cost was measured on (invariant 6: the device is part of a record's key).

The fingerprint changes when the processor, its vector instructions, the number of processors that may be used, the
operating system or the architecture change, and not when the machine reboots: clock frequencies, microcode, host name
and memory size stay out of it. Of a CUDA device it holds the model, the compute capability, the number of
multiprocessors and the size of the last-level cache (`collage.runtime.cuda.device`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collage.errors import CollageError

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu")
#: Flags of /proc/cpuinfo that generated code can depend on; the kernel's own pseudo flags come and go with its version.
_INSTRUCTION_SETS = re.compile(
    r"(s?sse|avx|amx|fma|f16c|bmi|abm$|popcnt|movbe|sha\d?(_|\d|$)|v?aes|gfni|v?pclmul|neon|asimd|sve|sme(\d|_|$)"
    r"|fp(hp)?$|bf16|i8mm)"
)


@dataclass(frozen=True)
class DeviceInfo:
    """One device, as far as the cost of running something on it depends on it.

    Attributes
    ----------
    kind
        DLPack device type, "cpu" or "cuda".
    model
        The name that the maker gives it, with vendor, family, model and stepping where the system states them.
    features
        Instruction sets that generated code can use, sorted; empty where the system does not list them; of a CUDA
        device its compute capability and the size of its last-level cache.
    cores
        Logical processors that this machine or container may use; multiprocessors of a CUDA device.
    memory
        Bytes of its memory, 0 where it is not known; for people and for features, not part of the fingerprint.
    os, arch
        Such as "Linux" and "x86_64".
    cache
        Bytes of the second- and third-level caches of these processors together, 0 where they are not known; not part
        of the fingerprint.
    """

    kind: str
    model: str
    features: tuple[str, ...]
    cores: int
    memory: int
    os: str
    arch: str
    cache: int = 0

    @property
    def fingerprint(self) -> str:
        """Short and stable, such as `cpu-x86_64-2-5f0c3a9b1d7e`; equal machines share it."""
        identity = [self.kind, self.model, list(self.features), self.cores, self.os, self.arch]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
        return f"{self.kind}-{self.arch}-{self.cores}-{digest}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields, `fingerprint` included, as they are stored with a record."""
        return {**asdict(self), "features": list(self.features), "fingerprint": self.fingerprint}


def is_host(device: str) -> bool:
    """Whether a device ("cpu", "cpu:1", "cuda") is a processor of this machine: its calls are over when they return,
    and the host's clock times them.
    """
    return device.partition(":")[0] == "cpu"


def describe_device(kind: str = "cpu") -> DeviceInfo:
    """Describe the device of this kind on this machine; of several CPUs ("cpu:1") all are one and the same.

    Raises
    ------
    CollageError
        No device of this kind can be described.
    """
    kind = kind.partition(":")[0]
    if kind == "cuda":
        return _describe_cuda()
    if kind != "cpu":
        raise CollageError(f"cannot describe a device of kind {kind!r}: only 'cpu' and 'cuda' are supported")
    entries = _cpuinfo()
    return DeviceInfo(
        kind=kind,
        model=_model(entries),
        features=_features(entries),
        cores=_usable_cores(),
        memory=_memory(),
        os=platform.system(),
        arch=platform.machine(),
        cache=_cache(),
    )


def _describe_cuda() -> DeviceInfo:
    from collage.runtime.cuda.device import cuda_device

    device = cuda_device()
    return DeviceInfo(
        kind="cuda",
        model=device.name,
        features=device.features,
        cores=device.multiprocessors,
        memory=device.memory_bytes,
        os=platform.system(),
        arch=platform.machine(),
    )


def _cpuinfo() -> list[dict[str, str]]:
    """The blocks of /proc/cpuinfo, one per logical processor; empty where there is none (macOS, Windows)."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
        if entry := {name.strip(): value.strip() for name, value in pairs}:
            blocks.append(entry)
    return blocks


def _model(entries: list[dict[str, str]]) -> str:
    """All distinct processors of the machine: a big.LITTLE machine has several."""
    names = {name for entry in entries if (name := _model_of(entry))}
    if names:
        return "; ".join(sorted(names))
    if platform.system() == "Darwin" and (brand := _sysctl("machdep.cpu.brand_string")):
        return brand
    return platform.processor() or platform.machine() or "unknown processor"


def _model_of(entry: Mapping[str, str]) -> str:
    if "cpu family" in entry:
        x86 = f"{entry.get('vendor_id', '')} family {entry['cpu family']} model {entry.get('model', '?')}"
        return f"{entry.get('model name', '')} ({x86} stepping {entry.get('stepping', '?')})".strip()
    if "CPU implementer" in entry:
        names = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")
        return "Arm " + " ".join(f"{name.removeprefix('CPU ')} {entry.get(name, '?')}" for name in names)
    return entry.get("model name", entry.get("uarch", ""))


def _features(entries: list[dict[str, str]]) -> tuple[str, ...]:
    """Instruction sets that every processor of the machine has."""
    listed = [set(text.split()) for e in entries if (text := e.get("flags", e.get("Features", "")))]
    common = set.intersection(*listed) if listed else set()
    return tuple(sorted(flag for flag in common if _INSTRUCTION_SETS.match(flag)))


def _usable_cores() -> int:
    """Logical processors, less what a container's limits take away.

    The affinity mask of the process is left out on purpose: run-time thread pools change the mask of the thread that
    calls them, and the fingerprint must not depend on what has run before.
    """
    cores = os.cpu_count() or 1
    try:
        allowed = (_CGROUP / "cpuset.cpus.effective").read_text().strip()
        cores = min(cores, sum(_range_length(part) for part in allowed.split(",")) or cores)
    except (OSError, ValueError):
        pass  # no control groups, or their first version: no limit is known
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        cores = cores if quota == "max" else min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def _memory() -> int:
    """Bytes of main memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _cache() -> int:
    """Bytes of the caches beyond the first level: each counts once, and of those alike as many as processors can use.

    A container that is limited to a few processors does not see which of them; it can use no more caches than that.
    """
    levels: dict[int, dict[str, int]] = {}
    for index in _CACHES.glob("cpu[0-9]*/cache/index*"):
        try:
            level, size = int((index / "level").read_text()), (index / "size").read_text().strip()
            shared_by = (index / "shared_cpu_list").read_text().strip()
            levels.setdefault(level, {})[shared_by] = int(size[:-1]) << {"K": 10, "M": 20, "G": 30}[size[-1]]
        except (OSError, ValueError, LookupError):
            continue  # virtual machines leave out what they do not know
    cores = _usable_cores()
    return sum(sum(sorted(sizes.values())[-cores:]) for level, sizes in levels.items() if level > 1)


def _range_length(part: str) -> int:
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1


def _sysctl(name: str) -> str:
    try:
        result = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()
