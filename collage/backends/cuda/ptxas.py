"""What NVIDIA's assembler says of the kernels that it makes (`ptxas -v`): registers, spills, and where it gives up."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
#: C7508 says that registers are not moved between warps, C7510 that tensor operations wait for one another.
_LOSS = re.compile(r"\(C75\d\d\)[^\n]*")


@dataclass(frozen=True)
class KernelUsage:
    """What one kernel takes.

    Attributes
    ----------
    name
        As the assembler has it.
    registers
        Of a thread.
    stack, spilled
        Bytes of local memory of a thread: all of it, and that which registers were stored to.
    shared
        Bytes of shared memory whose size is known when the kernel is compiled.
    """

    name: str
    registers: int
    stack: int
    spilled: int
    shared: int


def kernel_usages(report: str) -> list[KernelUsage]:
    """The kernels of a report, in its order."""
    found: list[KernelUsage] = []
    entry, function = "", ""
    frames: dict[str, tuple[int, int]] = {}
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            entry = function = match[1]
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif match := _STACK.search(line):
            frames[function] = int(match[1]), int(match[2]) + int(match[3])
        elif match := _USED.search(line):
            shared = _SHARED.search(line)
            found.append(KernelUsage(entry, int(match[1]), *frames.get(entry, (0, 0)), int(shared[1]) if shared else 0))
    return found


def losses(report: str) -> list[str]:
    """Why the assembler made slower code than it was asked for; each reason once."""
    return list(dict.fromkeys(_LOSS.findall(report)))


def complaint(report: str) -> str:
    """What is wrong with compiled kernels, in one line; "" when nothing is."""
    spilled = [f"{usage.spilled} bytes of registers are spilled" for usage in kernel_usages(report) if usage.spilled]
    return "; ".join([*dict.fromkeys(spilled), *losses(report)])
