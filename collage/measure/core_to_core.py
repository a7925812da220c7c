"""Core-to-core latency: how long processors take to pass a cache line to each other and back.

A hypervisor moves virtual processors between cores. While two of them are on cores without a cache in common, a round
trip takes four times as long, and a network of many short parallel steps twice as long: on one machine of the cloud
this came and went within seconds to minutes, for all processes at a time, and changed which engine was the fastest.
Neither load, nor stolen time, nor single-threaded arithmetic shows it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from collage.files import replacing
from collage.measure.host_lock import shared_folders

_SOURCE = Path(__file__).with_name("core_to_core.cc")
#: So many processors at most are looked at, each with the first one.
_PROCESSORS = 8
#: Seconds: two threads of one core are nearer than any two cores, but they share its units. A hypervisor puts two
#: processors there at times (seen: 62 ns, where two cores next to each other take 100 to 180; arithmetic on both at a
#: time then took 2.06 times as long as on one).
ONE_CORE_S = 100e-9
#: A least latency that is less by this share is remembered for other processes.
_NEWS = 0.1
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def core_to_core() -> float:
    """The latency between the first processor that this process may use and the others, over its least since the
    machine was started, of the pair for which this is the largest. A least that no two cores have (`ONE_CORE_S`) does
    not count. 0 where it is not known: one processor, no compiler, a processor that others keep busy, or a system
    other than Linux.
    """
    if not hasattr(os, "sched_getaffinity"):
        return 0.0
    first, *others = sorted(os.sched_getaffinity(0))[:_PROCESSORS]
    worst = 0.0
    for other in others:
        seconds = round_trip(first, other)
        if math.isfinite(seconds):
            worst = max(worst, seconds / _least(f"{first}-{other}", seconds))
    return worst


def round_trip(first: int, second: int) -> float:
    """Seconds from one processor to the other and back; infinite where they did not run at a time, or no compiler is
    there.
    """
    measure = _function()
    return math.inf if measure is None else 1e-9 * measure(first, second)


@cache
def _function() -> Callable[[int, int], float] | None:
    from tvm_ffi.cpp import build

    try:
        function = ctypes.CDLL(build("collage_core_to_core", cpp_files=str(_SOURCE), extra_cflags=["-O2"]))
    except (OSError, RuntimeError):
        return None
    found = function.collage_core_to_core_ns
    found.restype, found.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int]
    return found


def _least(pair: str, seconds: float) -> float:
    """The least latency of a pair, in seconds, this one included, but no less than two cores can have."""
    known = _known()
    before = known.get(pair, math.inf)
    if seconds < before:
        known[pair] = seconds
        if seconds < (1.0 - _NEWS) * before:
            for path in _files():
                with contextlib.suppress(OSError), replacing(path) as partial:
                    partial.write_text(json.dumps(known))
                    break
    return max(ONE_CORE_S, known[pair])


@cache
def _known() -> dict[str, float]:
    """Pair of processors -> its least latency, in seconds: at first, what other processes of this user remembered."""
    for path in _files():
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            found = json.loads(path.read_text())
            return {str(pair): float(seconds) for pair, seconds in found.items() if seconds > 0.0}
    return {}


def _files() -> list[Path]:
    """Where it is remembered: the first that can be read or written. Helpers have temporary folders of their own."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else "unknown"
    return [Path(folder) / f"collage-core-to-core-{os.getuid()}-{boot}.json" for folder in shared_folders()]
