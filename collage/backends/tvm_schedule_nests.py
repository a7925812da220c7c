"""Schedule rule: every loop nest for itself. Sums of products in register tiles, everything else in vectors along
contiguous memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir

from collage.backends.tvm_blocks import Axis, Block
from collage.backends.tvm_convolution import PADDED
from collage.backends.tvm_schedule import Machine, blocks_of, is_worth_threads
from collage.backends.tvm_schedule_tile import tile

#: Reductions of at most this many elements keep their initial value inside: LLVM unrolls them, and makes vectors outside.
WINDOW = 64


def schedule_nests(sch: s_tir.Schedule, machine: Machine) -> bool:
    """Tile the reductions that can be tiled, with their consumers where those fit; then each nest that is left."""
    for rv in blocks_of(sch):
        block = Block(sch, rv)
        if block.regular and block.reduced:
            trial = sch.copy()
            try:
                taken = tile(trial, rv, machine)
            except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
                taken = False
            if taken:
                tile(sch, rv, machine)
    for rv in blocks_of(sch):
        block = Block(sch, rv)
        if block.regular and block.axes and _untouched(sch, block):
            if block.reduced:
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
    """The axes split into outer ones and the innermost that can be walked as one contiguous axis."""
    axes = block.spatial
    accesses = [*block.loads, *block.stores]
    group = [axes[-1]]
    strides = [block.stride(access, axes[-1]) for access in accesses]
    if PADDED in block.stmt.annotations:
        return axes[:-1], group
    for axis in reversed(axes[:-1]):
        if block.depends_on_choice(axis) or block.depends_on_choice(group[0]):
            break
        outer = [block.stride(access, axis) for access in accesses]
        extent = group[0].extent
        if any(o is None or s is None or o != s * extent for o, s in zip(outer, strides, strict=True)):
            break
        group = [axis, *group]
        strides = [s for s in strides]
        merged = Axis(axis.var, axis.extent * extent, axis.kind, axis.loop)
        group[0] = merged
    return axes[: len(axes) - len(group)], group


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


def plain_reduction(sch: s_tir.Schedule, block: Block, machine: Machine) -> None:
    """A reduction that no other rule takes: spatial axes outside, on all threads."""
    spatial, reduced = block.spatial, block.reduced
    sch.reorder(*[axis.loop for axis in [*spatial, *reduced]])
    threaded(sch, [axis.loop for axis in spatial[:-1]] or [axis.loop for axis in spatial], block, machine)
    if spatial and len(block.stores) == 1 and prod(axis.extent for axis in reduced) > WINDOW:
        sch.decompose_reduction(block.rv, sch.get_loops(block.rv)[-len(reduced)])
