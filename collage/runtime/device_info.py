"""DeviceInfo: which machine a cost was measured on (invariant 6: the device is part of a record's key).

The fingerprint changes when the processor, its vector instructions, the number of processors that may be used, the
operating system or the architecture change, and not when the machine reboots: clock frequencies, microcode, host name
and memory size stay out of it. Of a CUDA device it holds the model, the compute capability, the number of
multiprocessors and the size of the last-level cache (`collage.runtime.cuda.device`). Of a board, which runs TVM's
runtime alone (`collage.measure.boards`), it holds which build of that this is, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collage.errors import CollageError

_CPUINFO = Path("/proc/cpuinfo")
_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu")
#: Files of a control group that limit processors; how many caches a processor has at most; units of its size.
_LIMITS = ("cpuset.cpus.effective", "cpu.max")
_MOST_CACHES = 5
_UNITS = MappingProxyType({"K": 10, "M": 20, "G": 30})
#: Of a cache its level, its size and the processors that share it, as Linux writes them.
_Cache = tuple[str, str, str]
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
    runtime
        Of a board, the build of TVM that runs on it; "" of this machine.
    """

    kind: str
    model: str
    features: tuple[str, ...]
    cores: int
    memory: int
    os: str
    arch: str
    cache: int = 0
    runtime: str = ""

    @property
    def fingerprint(self) -> str:
        """Short and stable, such as `cpu-x86_64-2-5f0c3a9b1d7e`; equal machines share it."""
        identity = [self.kind, self.model, list(self.features), self.cores, self.os, self.arch]
        if self.runtime:
            identity.append(self.runtime)
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:12]
        return f"{self.kind}-{self.arch}-{self.cores}-{digest}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields, `fingerprint` included, as they are stored with a record."""
        fields = {**asdict(self), "features": list(self.features), "fingerprint": self.fingerprint}
        if not self.runtime:
            del fields["runtime"]
        return fields


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


def describe_elsewhere(read: Callable[[str], str], system: str, arch: str, runtime: str) -> DeviceInfo:
    """Describe the processor of another machine with Linux by its files.

    Parameters
    ----------
    read
        Gives the text of the file of a path there; "" where it cannot be read.
    system, arch, runtime
        As of `DeviceInfo`.
    """
    entries = _blocks(read(str(_CPUINFO)))
    online = read(str(_CACHES / "online")).strip()
    processors = sum(map(_range_length, online.split(","))) if online else max(1, len(entries))
    cores = _limited(processors, *(read(str(_CGROUP / name)) for name in _LIMITS))
    memory = re.search(r"^MemTotal:\s+(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    return DeviceInfo(
        kind="cpu",
        model=_names(entries) or "unknown processor",
        features=_features(entries),
        cores=cores,
        memory=int(memory[1]) << 10 if memory else 0,
        os=system,
        arch=arch,
        cache=_cache_bytes(_caches_elsewhere(read, processors), cores),
        runtime=runtime,
    )


def _caches_elsewhere(read: Callable[[str], str], processors: int) -> Iterator[_Cache]:
    for cpu, index in product(range(processors), range(_MOST_CACHES)):
        folder = _CACHES / f"cpu{cpu}" / "cache" / f"index{index}"
        yield read(f"{folder}/level"), read(f"{folder}/size"), read(f"{folder}/shared_cpu_list")


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
    return _blocks(_read(_CPUINFO))


def _blocks(text: str) -> list[dict[str, str]]:
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
        if entry := {name.strip(): value.strip() for name, value in pairs}:
            blocks.append(entry)
    return blocks


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _model(entries: list[dict[str, str]]) -> str:
    if names := _names(entries):
        return names
    if platform.system() == "Darwin" and (brand := _sysctl("machdep.cpu.brand_string")):
        return brand
    return platform.processor() or platform.machine() or "unknown processor"


def _names(entries: list[dict[str, str]]) -> str:
    """All distinct processors of the machine: a big.LITTLE machine has several."""
    return "; ".join(sorted({name for entry in entries if (name := _model_of(entry))}))


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
    return _limited(os.cpu_count() or 1, *(_read(_CGROUP / name) for name in _LIMITS))


def _limited(cores: int, allowed: str, quota: str) -> int:
    """Processors that a control group leaves, by what its files say: "" where there is none, or its first version."""
    if re.fullmatch(r"[\d,-]*\d", allowed.strip()):
        cores = min(cores, sum(map(_range_length, allowed.strip().split(","))) or cores)
    limit, _, period = quota.strip().partition(" ")
    if limit.isdecimal() and period.isdecimal():
        cores = min(cores, math.ceil(int(limit) / int(period)))
    return max(1, cores)


def _memory() -> int:
    """Bytes of main memory; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def _cache() -> int:
    folders = _CACHES.glob("cpu[0-9]*/cache/index*")
    found = ((_read(f / "level"), _read(f / "size"), _read(f / "shared_cpu_list")) for f in folders)
    return _cache_bytes(found, _usable_cores())


def _cache_bytes(caches: Iterable[_Cache], cores: int) -> int:
    """Bytes of the caches beyond the first level: each counts once, and of those alike as many as processors can use.

    A container that is limited to a few processors does not see which of them; it can use no more caches than that.
    """
    levels: dict[int, dict[str, int]] = {}
    for level, size, shared_by in caches:
        number, unit = size.strip()[:-1], size.strip()[-1:]
        if level.strip().isdecimal() and number.isdecimal() and unit in _UNITS:  # virtual machines leave things out
            levels.setdefault(int(level), {})[shared_by.strip()] = int(number) << _UNITS[unit]
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
