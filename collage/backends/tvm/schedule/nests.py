"""Schedule rule: every loop nest for itself. Sums of products in register tiles, everything else in vectors along
contiguous memory.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

from tvm import s_tir

from collage.backends.tvm.convolution import PADDED
from collage.backends.tvm.schedule.blocks import Axis, Block
from collage.backends.tvm.schedule.machine import Machine, attempt, blocks_of, is_worth_threads
from collage.backends.tvm.schedule.rows import runs_along_rows, split_into_lanes, vectorize_lanes
from collage.backends.tvm.schedule.tile import tile

#: Reductions of at most this many elements keep their initial value inside: LLVM unrolls them, and makes vectors
#: outside.
WINDOW = 64


def schedule_nests(sch: s_tir.Schedule, machine: Machine) -> s_tir.Schedule:
    """Tile the reductions that can be tiled, with their consumers where those fit; then each nest that is left."""
    for rv in blocks_of(sch):
        sch = attempt(sch, functools.partial(_tile, rv=rv), machine) or sch
    for rv in blocks_of(sch):
        sch = attempt(sch, functools.partial(_nest, rv=rv), machine) or sch
    return sch


def _tile(sch: s_tir.Schedule, machine: Machine, rv: Any) -> bool:
    block = Block(sch, rv)
    return block.regular and bool(block.reduced) and tile(sch, rv, machine)


def _nest(sch: s_tir.Schedule, machine: Machine, rv: Any) -> bool:
    block = Block(sch, rv)
    if not block.regular or not block.axes or not _untouched(sch, block):
        return False
    if block.reduced and prod(axis.extent for axis in block.spatial) == 1 and runs_along_rows(block):
        one_row(sch, block, machine)
    elif block.reduced:
        plain_reduction(sch, block, machine)
    else:
        elementwise(sch, block, machine)
    return True


def _untouched(sch: s_tir.Schedule, block: Block) -> bool:
    """Whether no rule has scheduled the block's loops yet, and it shares them with no other block."""
    loops = [sch.get(axis.loop) for axis in block.axes]
    return all(int(loop.kind) == 0 for loop in loops) and len(sch.get_child_blocks(block.axes[0].loop)) == 1


def elementwise(sch: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """A nest without reductions: threads outside, vectors along the axes that all its accesses walk contiguously."""
    outer, group = vector_group(block)
    loops = [axis.loop for axis in outer]
    annotations = block.stmt.annotations
    if PADDED in annotations and group:
        row, column = sch.split(group[-1].loop, [None, int(annotations[PADDED])])
        loops, inner = [*loops, *(axis.loop for axis in group[:-1]), row], [column]
    else:
        inner = vectorized(sch, block, group, machine)
    threaded(sch, [*loops, *inner[:-1]] if len(inner) > 1 else loops or inner, block, machine)


def vector_group(block: Block) -> tuple[list[Axis], list[Axis]]:
    """The axes split into outer ones and the innermost that all accesses walk as if they were one axis."""
    axes, accesses = block.spatial, [*block.loads, *block.stores]
    first = len(axes) - 1
    strides = [block.stride(access, axes[first]) for access in accesses]
    extent = axes[first].extent
    while first > 0 and PADDED not in block.stmt.annotations:
        outer = [block.stride(access, axes[first - 1]) for access in accesses]
        joined = all(o is not None and s is not None and o == s * extent for o, s in zip(outer, strides, strict=True))
        if not joined or block.depends_on_choice(axes[first - 1]) or block.depends_on_choice(axes[first]):
            break
        first -= 1
        extent *= axes[first].extent
    return axes[:first], axes[first:]


def vectorized(sch: s_tir.Schedule, block: Block, group: list[Axis], machine: Machine) -> list[Any]:
    """Fuse a group of axes into one loop and vectorise it where that pays; what LLVM vectorises by itself is left to
    it.
    """
    loop = sch.fuse(*[axis.loop for axis in group]) if len(group) > 1 else group[0].loop
    extent = int(sch.get(loop).extent)
    lanes = machine.lanes(block.stores[0].buffer.dtype) if block.stores else 1
    last = group[-1]
    steps = [block.stride(access, last) for access in [*block.loads, *block.stores]]
    if lanes < 2 or extent % lanes or any(step not in (0, 1) for step in steps) or block.depends_on_choice(last):
        return [loop]
    outer, vector = sch.split(loop, [None, lanes])
    sch.vectorize(vector)
    return [outer, vector]


def threaded(sch: s_tir.Schedule, loops: list[Any], block: Block, machine: Machine) -> None:
    """Run the outer loops on all threads: as few of them as give every thread several pieces."""
    if not loops or not is_worth_threads(block, machine):
        return
    count, taken = 1, 0
    while taken < len(loops) and count < 4 * machine.threads:
        count *= int(sch.get(loops[taken]).extent)
        taken += 1
    fused = sch.fuse(*loops[:taken]) if taken > 1 else loops[0]
    sch.parallel(fused)


def one_row(sch: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """A reduction of a single row to a number."""
    partial = split_into_lanes(sch, block, machine)
    for rv in blocks_of(sch):
        if sch.get(rv).name_hint in partial:
            vectorize_lanes(sch, rv, machine)


def plain_reduction(sch: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """A reduction that no other rule takes: spatial axes outside, on all threads."""
    spatial, reduced = block.spatial, block.reduced
    sch.reorder(*[axis.loop for axis in [*spatial, *reduced]])
    threaded(sch, [axis.loop for axis in spatial[:-1]] or [axis.loop for axis in spatial], block, machine)
    if spatial and len(block.stores) == 1 and prod(axis.extent for axis in reduced) > WINDOW:
        sch.decompose_reduction(block.rv, sch.get_loops(block.rv)[-len(reduced)])
