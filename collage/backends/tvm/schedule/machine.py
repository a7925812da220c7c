"""What schedule rules share: the processor that they schedule for, and steps that may fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir

from collage.backends.tvm.schedule.blocks import Block

#: Launching a parallel loop costs 5 to 10 microseconds; below this many cheap element operations, one thread is faster.
PARALLEL_WORK = 32 * 1024
#: A transcendental function counts as this many cheap operations.
HEAVY = 8


@dataclass(frozen=True)
class Machine:
    """What the rules know of the processor.

    Attributes
    ----------
    vector_bits
        Width of its vector registers.
    registers
        How many it has.
    threads
        That kernels run on.
    """

    vector_bits: int
    registers: int
    threads: int

    @classmethod
    def of(cls, target: tvm.target.Target) -> Machine:
        bits = max(int(tvm.target.codegen.llvm_get_vector_width(target)), 128)
        return cls(bits, 32 if bits >= 512 else 16, int(target.attrs.get("num-cores", 1)))

    def lanes(self, dtype: Any) -> int:
        """Elements per vector register."""
        return max(self.vector_bits // max(int(tvm.DataType(str(dtype)).bits), 8), 1)


Step = Callable[[s_tir.Schedule, Machine], bool]


def attempt(sch: s_tir.Schedule, step: Step, machine: Machine) -> s_tir.Schedule | None:
    """A copy of the schedule after a step; None when the step declines, or asks for what the kernel does not allow.

    Handles of blocks and loops are good for the copy as well.
    """
    trial = sch.copy()
    try:
        return trial if step(trial, machine) else None
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
        return None


def blocks_of(sch: s_tir.Schedule) -> list[Any]:
    """The blocks of the kernel, in program order."""
    root = sch.get_sblock(sch.mod["main"].body.block.name_hint)
    return list(sch.get_child_blocks(root))


def is_worth_threads(block: Block, machine: Machine) -> bool:
    """Whether a nest has enough work for a parallel launch."""
    return machine.threads > 1 and block.elements * (1 + HEAVY * block.heavy_calls) >= PARALLEL_WORK
