"""Schedule rule for kernels that go over rows: softmax, normalisations, means, sums.

All their stages share the leading axes. One parallel loop runs over these, and a row goes through all stages while it
is in the cache. Along the row, partial results in vector lanes replace the chain of scalar operations that a
reduction is as written.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm.schedule.blocks import Block
from collage.backends.tvm.schedule.machine import Machine, blocks_of, is_worth_threads

#: Shorter rows that no vector divides are reduced in one chain.
SHORT_ROW = 32


def schedule_rows(sch: s_tir.Schedule, machine: Machine) -> bool:
    """Take a kernel whose reductions all run along contiguous rows."""
    blocks = [Block(sch, rv) for rv in blocks_of(sch)]
    if any(not block.regular or not block.axes for block in blocks):
        return False
    reductions = [block for block in blocks if block.reduced]
    if not reductions or not all(runs_along_rows(block) for block in reductions):
        return False
    shared = leading_axes(blocks)
    if shared == 0:
        return False
    last = blocks[-1]
    if any(sch.get(out).name_hint != last.stmt.name_hint for out in outputs_of(sch)):
        return False
    parallel = any(is_worth_threads(block, machine) for block in blocks)
    partial = {name for block in reductions for name in split_into_lanes(sch, block, machine)}
    stages = blocks_of(sch)
    loops = sch.get_loops(stages[-1])[:shared]
    rows = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    for rv in reversed(stages[:-1]):
        sch.compute_at(rv, rows, preserve_unit_loops=True)
    if parallel:
        sch.parallel(rows)
    for rv in stages:
        if sch.get(rv).name_hint in partial:
            vectorize_lanes(sch, rv, machine)
        else:
            vectorize_row(sch, rv, machine)
    return True


def runs_along_rows(block: Block) -> bool:
    """Whether a reduction reads contiguous rows, each element for one result only (unlike a pooling window or a
    matrix product).
    """
    row = prod(axis.extent for axis in block.reduced)
    last = block.reduced[-1]
    walked = [load for load in block.loads if block.stride(load, last) != 0]
    contiguous = any(block.stride(load, last) == 1 for load in walked)
    outside = [axis for axis in block.spatial if axis.extent > 1]
    steps = [[block.stride(load, axis) for axis in outside] for load in walked]
    return contiguous and all(step is not None and step >= row for of_load in steps for step in of_load)


def outputs_of(sch: s_tir.Schedule) -> list[Any]:
    root = sch.get_sblock(sch.mod["main"].body.block.name_hint)
    return list(sch.get_output_blocks(root))


def leading_axes(blocks: list[Block]) -> int:
    """How many leading spatial axes, of equal extents, all blocks share."""
    count = 0
    for axes in zip(*(block.axes for block in blocks), strict=False):
        if any(axis.kind != "S" for axis in axes) or len({axis.extent for axis in axes}) != 1:
            break
        count += 1
    return count


def split_into_lanes(sch: s_tir.Schedule, block: Block, machine: Machine) -> list[str]:
    """Reduce in many partial results first, then these to fewer, then the last ones one by one; gives the names of the
    partial stages.
    """
    if len(block.stores) != 1:
        return []
    spatial = [axis.loop for axis in block.spatial]
    reduced = [axis.loop for axis in block.reduced]
    widths = partial_widths(prod(axis.extent for axis in block.reduced), machine.lanes(block.stores[0].buffer.dtype))
    sch.reorder(*spatial, *reduced)
    loop = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    partial: list[str] = []
    for width in widths:
        _, inner = sch.split(loop, [None, width])
        stage = sch.rfactor(inner, len(spatial))
        partial.append(str(sch.get(stage).name_hint))
        loop = sch.get_loops(block.rv)[-1]
    return partial


def partial_widths(extent: int, lanes: int) -> list[int]:
    """How many partial results a row is reduced to, in steps.

    Two vectors hide some of the latency of an addition; half a vector leaves few lanes for the scalar end. A long row
    that no vector divides is reduced to a factor near its square root, if it has one: a chain over all of it is slow,
    and loses digits. (A width that does not divide the row would need a predicate, and `compute_at` drops those.)
    """
    widths: list[int] = []
    left = extent
    for width in (2 * lanes, lanes // 2):
        if width >= 2 and left % width == 0 and left >= 2 * width:
            widths.append(width)
            left = width
    if widths or extent < SHORT_ROW:
        return widths
    few = max(factor for factor in range(1, isqrt(extent) + 1) if extent % factor == 0)
    return [extent // few] if few > 1 else []


def vectorize_lanes(sch: s_tir.Schedule, rv: Any, machine: Machine) -> None:
    """A partial reduction: its lanes, the only spatial axis beside the rows, become a vector inside; more than two
    vectors are left to LLVM.
    """
    loops = sch.get_loops(rv)
    realized = sch.get(loops[-1]).body
    runs = [
        (axis.iter_type, next((loop for loop in loops if sch.get(loop).loop_var.same_as(value)), None))
        for axis, value in zip(realized.block.iter_vars, realized.iter_values, strict=True)
    ]
    steps = next(loop for kind, loop in runs if kind == tirx.IterVar.CommReduce)
    lanes = [loop for kind, loop in runs if kind == tirx.IterVar.DataPar and loop is not None]
    lane = max(lanes, key=lambda loop: int(sch.get(loop).extent))
    sch.reorder(steps, lane)
    if int(sch.get(lane).extent) <= 2 * machine.lanes(sch.get(rv).writes[0].source.dtype):
        sch.vectorize(lane)
    sch.decompose_reduction(rv, steps)


def vectorize_row(sch: s_tir.Schedule, rv: Any, machine: Machine) -> None:
    """A stage that computes a whole row: vectors where the row length allows it, LLVM's otherwise."""
    block, inner = sch.get(rv), sch.get_loops(rv)[-1]
    lanes = machine.lanes(block.writes[0].source.dtype)
    if any(it.iter_type != tirx.IterVar.DataPar for it in block.iter_vars) or len(sch.get_loops(rv)) < 2:
        return
    if lanes > 1 and int(sch.get(inner).extent) % lanes == 0:
        sch.vectorize(sch.split(inner, [None, lanes])[1])
