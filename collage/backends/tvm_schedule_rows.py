"""Schedule rule for kernels that go over rows: softmax, normalisations, means, sums.

All their stages share the leading axes. One parallel loop runs over these, and a row goes through all stages while it
is in the cache. Along the row, partial results in vector lanes replace the chain of scalar operations that a
reduction is as written.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import s_tir, tirx

from collage.backends.tvm_blocks import Block
from collage.backends.tvm_schedule import Machine, blocks_of, is_worth_threads


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
            vectorize_lanes(sch, rv)
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
    steps = [[block.stride(load, axis) for axis in block.spatial] for load in walked]
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
    """Reduce in two vectors first, then these in half a vector, then its lanes one by one; gives the names of the
    partial stages.

    Two vectors hide some of the latency of an addition; half a vector leaves few lanes for the scalar end.
    """
    if len(block.stores) != 1:
        return []
    lanes = machine.lanes(block.stores[0].buffer.dtype)
    extent = prod(axis.extent for axis in block.reduced)
    spatial = [axis.loop for axis in block.spatial]
    reduced = [axis.loop for axis in block.reduced]
    sch.reorder(*spatial, *reduced)
    loop = sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]
    partial: list[str] = []
    for width in (2 * lanes, lanes // 2):
        if width < 2 or extent % width or extent < 2 * width:
            continue
        _, inner = sch.split(loop, [None, width])
        stage = sch.rfactor(inner, len(spatial))
        partial.append(str(sch.get(stage).name_hint))
        loop, extent = sch.get_loops(block.rv)[-1], width
    return partial


def vectorize_lanes(sch: s_tir.Schedule, rv: Any) -> None:
    """A partial reduction: its lanes, the only spatial axis beside the rows, become a vector inside."""
    axes = sch.get(rv).iter_vars
    loops = sch.get_loops(rv)[-len(axes) :]
    steps = next(loop for loop, axis in zip(loops, axes, strict=True) if axis.iter_type == tirx.IterVar.CommReduce)
    lanes = [loop for loop, axis in zip(loops, axes, strict=True) if axis.iter_type == tirx.IterVar.DataPar]
    lane = max(lanes, key=lambda loop: int(sch.get(loop).extent))
    sch.reorder(steps, lane)
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
