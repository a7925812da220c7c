"""Identity of a board: its processor, and the TVM that runs on it. Both are part of the keys of records from it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from collage.measure.boards.files import BoardFiles
from collage.runtime.device_info import DeviceInfo, describe_elsewhere

#: Libraries of TVM among what a process has mapped.
_LIBRARY = re.compile(r"\s(/\S*/lib[^/\s]*tvm[^/\s]*\.so[^/\s]*)$", re.MULTILINE)
#: Bytes at the beginning of a library that are looked at.
_BEGIN = 1 << 16
_CACHES = "/sys/devices/system/cpu/cpu"


@dataclass(frozen=True)
class BoardIdentity:
    """One board.

    Attributes
    ----------
    target
        TVM's target, as JSON-ready data.
    device
        Its processor and its runtime.
    host
        Which of several alike it is, as of `collage.measure.host`.
    """

    target: dict[str, Any]
    device: DeviceInfo
    host: str


def identify(files: BoardFiles, target: dict[str, Any]) -> BoardIdentity:
    """Ask a board what it is."""
    system, node, machine = files.names()
    device = describe_elsewhere(files.text, system, machine, _runtime(files))
    return BoardIdentity(target, device, _host(files, node))


def fingerprint_of(files: BoardFiles) -> str:
    """The fingerprint alone, without what is no part of it."""
    system, _, machine = files.names()

    def read(path: str) -> str:
        return "" if path.startswith(_CACHES) else files.text(path)

    return describe_elsewhere(read, system, machine, _runtime(files)).fingerprint


def _host(files: BoardFiles, node: str) -> str:
    machine = files.text("/etc/machine-id").strip()
    return hashlib.sha256(f"collage board {machine} {node}".encode()).hexdigest()[:12]


def _runtime(files: BoardFiles) -> str:
    """Which build of TVM runs there: the sizes of its libraries, and how they begin, where every symbol is listed. TVM
    tells no version, and two boards may have two builds of one.
    """
    paths = sorted(set(_LIBRARY.findall(files.text("/proc/self/maps"))))
    found = hashlib.sha256()
    for path in paths:
        begin, size = files.content(path, _BEGIN)
        found.update(f"{path.rpartition('/')[2]} {size} ".encode() + begin)
    return f"TVM {found.hexdigest()[:12]}"
