"""Schedule rule for one reduction: a tile of its output stays in vector registers while the reduction runs.

This is the inner kernel of every fast matrix product (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008): `rows` scalars of one operand times `vectors` vectors of the other give rows * vectors sums,
none of which touches memory before it is complete. Matrix products have both; depthwise convolutions, pooling and
sums along outer axes have vectors only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Range

from collage.backends.tvm.convolution import PADDED, ROWS
from collage.backends.tvm.schedule.blocks import Axis, Block
from collage.backends.tvm.schedule.machine import PARALLEL_WORK, Machine

#: Fused multiply-adds in the unrolled body of the innermost loop: more only costs compile time.
UNROLLED = 160
#: Vector operations that a parallel launch is worth.
PARALLEL_VECTORS = PARALLEL_WORK


@dataclass(frozen=True)
class Tiling:
    """How to tile: the vector axis in pieces of `vectors * lanes`, the row axis, if there is one, in pieces of
    `rows`.
    """

    vector: Axis
    lanes: int
    vectors: int
    row: Axis | None
    rows: int
    packed: int | None


def tile(sch: s_tir.Schedule, rv: Any, machine: Machine) -> bool:
    """Tile one reduction and move its consumer into the tile's loops; False when its shape or its memory walk does
    not suit.
    """
    block = Block(sch, rv)
    tiling = tiling_of(block, machine)
    if tiling is None:
        return False
    copy, outputs = consumers_of(sch, rv)
    others = [axis.loop for axis in block.spatial if axis is not tiling.vector and axis is not tiling.row]
    row_outer, row_inner = sch.split(tiling.row.loop, [None, tiling.rows]) if tiling.row else (None, None)
    vector_outer, several, lanes = sch.split(tiling.vector.loop, [None, tiling.vectors, tiling.lanes])
    reduced = [axis.loop for axis in block.reduced]
    packs = tiling.packed is not None and not outputs
    rows_first = not packs and (bool(outputs) or tiling.row is None or tiling.row.extent >= tiling.vector.extent)
    tiles = [
        loop for loop in ((row_outer, vector_outer) if rows_first else (vector_outer, row_outer)) if loop is not None
    ]
    inner = [loop for loop in (row_inner, several) if loop is not None]
    sch.reorder(*others, *tiles, *reduced, *inner, lanes)
    if packs:
        pack(sch, block, tiling, vector_outer)
    finish_tile(sch, copy, tiles[-1], tiling)
    parallel = [*others, *tiles[:-1]]
    pieces = prod(int(sch.get(loop).extent) for loop in parallel)
    if pieces < machine.threads or not outputs:
        # Too few pieces: give up computing the output in them, and take all tiles as pieces.
        outputs = []
        parallel = parallel if pieces >= 2 * machine.threads else [*others, *tiles]
    outputs = [output for output in outputs if parallel and moved_into(sch, output, parallel[-1])]
    if outputs and (row_outer is None or int(sch.get(row_outer).extent) == 1):
        pad_inside(sch, rv, parallel[-1])
    if machine.threads > 1 and block.elements // tiling.lanes >= PARALLEL_VECTORS and parallel:
        sch.parallel(sch.fuse(*parallel) if len(parallel) > 1 else parallel[0])
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lanes)
    unroll_taps(sch, block, reduced, tiling)
    for output in outputs:
        vectorize_tail(sch, rv, output, machine)
    sch.decompose_reduction(rv, reduced[0])
    return True


def tiling_of(block: Block, machine: Machine) -> Tiling | None:
    """The tile of a block; None when no axis can be a vector."""
    if len(block.stores) != 1 or not block.spatial or not block.loads:
        return None
    store = block.stores[0]
    lanes = machine.lanes(store.buffer.dtype)
    vector = next((axis for axis in reversed(block.spatial) if block.stride(store, axis) == 1), None)
    if vector is None or lanes < 2:
        return None
    while lanes > 2 and vector.extent % lanes:
        lanes //= 2
    if vector.extent % lanes or (lanes < 4 and vector.extent > 4):
        return None
    steps = [block.stride(load, vector) for load in block.loads]
    walked = [load for load, step in zip(block.loads, steps, strict=True) if step != 0]
    if not walked:
        return None
    strided = [i for i, step in enumerate(steps) if step not in (0, 1)]
    row = row_axis(block, vector, walked)
    if strided and (row is None or row.extent < 4 or len(strided) != 1):
        return None
    rows, vectors = best_tile(row.extent if row else 1, vector.extent // lanes, machine)
    packed = strided[0] if strided else None
    if packed is None and row is not None and row.extent >= 4 * rows and len(block.reduced) == 1 and len(walked) == 1:
        # Far apart in memory: every vector costs an entry of the translation buffer, and no prefetcher follows.
        step = block.stride(walked[0], block.reduced[0])
        if step is not None and step > vectors * lanes:
            packed = next(i for i, s in enumerate(steps) if s != 0)
    if packed is not None and axis_position(block.loads[packed], vector) is None:
        if strided:
            return None
        packed = None
    return Tiling(vector, lanes, vectors, row, rows, packed)


def axis_position(load: Any, axis: Axis) -> int | None:
    """The dimension of a load that an axis alone runs through."""
    return next((i for i, index in enumerate(load.indices) if index.same_as(axis.var)), None)


def row_axis(block: Block, vector: Axis, walked: list[Any]) -> Axis | None:
    """The longest spatial axis along which the vector operands stand still: their vectors are used once per row."""
    still = [
        axis
        for axis in reversed(block.spatial)
        if axis is not vector and all(block.stride(load, axis) == 0 for load in walked)
    ]
    return max(still, key=lambda axis: axis.extent, default=None)


def best_tile(row_extent: int, vector_extent: int, machine: Machine) -> tuple[int, int]:
    """Rows and vectors per tile that divide the extents and need the fewest cycles per multiply-add.

    A core starts two multiply-adds and two loads per cycle; a multiply-add takes four, so that about ten sums hide
    its latency.
    """
    budget = machine.registers - (8 if machine.registers >= 32 else 4)
    best = (float("inf"), 1, 1)
    for rows in (r for r in range(1, min(row_extent, budget) + 1) if row_extent % r == 0):
        for vectors in (v for v in range(1, min(vector_extent, 8) + 1) if vector_extent % v == 0):
            sums = rows * vectors
            held = sums + 1 + (vectors if rows > 1 else 1)
            if sums <= budget and held <= machine.registers:
                cycles = max(sums / 2, (rows + vectors) / 2, 5.0)
                # Vectors come from the second-level cache, scalars are neighbours in a line of the first.
                loads = (rows + 4 * vectors) / sums
                best = min(best, (cycles / sums * (1 + 0.2 * loads), rows, vectors))
    return best[1], best[2]


def consumers_of(sch: s_tir.Schedule, rv: Any) -> tuple[Any, list[Any]]:
    """The block that takes a finished tile out of the registers, and those to be computed once all tiles of a row are
    there.
    """
    consumers = sch.get_consumers(rv)
    if len(consumers) == 1 and ROWS in sch.get(consumers[0]).annotations:
        sch.set_scope(rv, 0, "local")
        outputs = sch.get_consumers(consumers[0])
        return consumers[0], list(outputs) if len(outputs) == 1 else []
    if len(consumers) == 1 and _same_walk(sch, rv, consumers[0]):
        sch.set_scope(rv, 0, "local")
        return consumers[0], []
    return sch.cache_write(rv, 0, "local"), []


def _same_walk(sch: s_tir.Schedule, rv: Any, consumer: Any) -> bool:
    """Whether a consumer writes one element for each that the reduction writes, at the same place of an array of the
    same shape.
    """
    producer, block = Block(sch, rv), Block(sch, consumer)
    if not block.regular or block.reduced or len(block.stores) != 1 or len(sch.get_producers(consumer)) != 1:
        return False
    spatial = producer.spatial
    if [axis.extent for axis in spatial] != [axis.extent for axis in block.axes]:
        return False
    before = [producer.stride(producer.stores[0], axis) for axis in spatial]
    return before == [block.stride(block.stores[0], axis) for axis in block.axes]


def pack(sch: s_tir.Schedule, block: Block, tiling: Tiling, at: Any) -> None:
    """Copy the part of the vector operand that a tile needs so that its vectors are contiguous."""
    assert tiling.packed is not None
    load = block.loads[tiling.packed]
    source = next(i for i, region in enumerate(block.stmt.reads) if region.source.same_as(load.source))
    cache = sch.cache_read(block.rv, source, "global", consumer_blocks=[block.rv])
    position = axis_position(load, tiling.vector)
    assert position is not None
    rank = len(load.indices)
    order = [i for i in range(rank) if i != position] + [position]
    layout = tirx.IndexMap.from_func(lambda *i: [i[p] for p in order], ndim=rank, index_dtype="int64")
    sch.transform_layout(block.rv, ("read", source), layout)
    sch.compute_at(cache, at)


def pad_inside(sch: s_tir.Schedule, rv: Any, loop: Any) -> None:
    """Pad the data of a depthwise or narrow grouped convolution where they are used: no other piece needs them."""
    for producer in sch.get_producers(rv):
        annotations = sch.get(producer).annotations
        if PADDED in annotations:
            sch.compute_at(producer, loop)
            sch.split(sch.get_loops(producer)[-1], [None, int(annotations[PADDED])])


def moved_into(sch: s_tir.Schedule, output: Any, loop: Any) -> bool:
    """Compute an output stage inside a loop, where TVM can tell which part of it belongs there."""
    trial = sch.copy()
    try:
        trial.reverse_compute_at(output, loop)
    except (RuntimeError, ValueError):
        return False
    if not _once_each(trial, output):
        return False  # two pieces would write the same elements, one of them from rows that it lacks
    sch.reverse_compute_at(output, loop)
    return True


def _once_each(sch: s_tir.Schedule, rv: Any) -> bool:
    """Whether the loops around a block visit each of its elements, and none twice.

    Padded rows visit some too often; so do pieces that share an output channel, as a transposed convolution has them
    whose phases a tile of rows does not keep together. Their number alone may be right by chance.
    """
    loops = [sch.get(loop) for loop in sch.get_loops(rv)]
    block = sch.get(rv)
    if prod(int(loop.extent) for loop in loops) != prod(int(axis.dom.extent) for axis in block.iter_vars):
        return False
    if not loops:
        return True
    realized: list[Any] = []
    tvm_ffi.structural_walk(loops[-1].body, (s_tir.SBlockRealize, realized.append))
    domains = {loop.loop_var: Range.from_min_extent(loop.min, loop.extent) for loop in loops}
    node = next(node for node in realized if node.block.same_as(block))
    found = sym.detect_iter_map(node.iter_values, domains, node.predicate, "bijective")
    return len(found.indices) > 0


def finish_tile(sch: s_tir.Schedule, copy: Any, at: Any, tiling: Tiling) -> None:
    """Store the tile: rows unrolled, vectors along the vector axis."""
    sch.reverse_compute_at(copy, at)
    loops = sch.get_loops(copy)
    last = loops[-1]
    extent = int(sch.get(last).extent)
    if extent % tiling.lanes == 0:
        several, lanes = sch.split(last, [None, tiling.lanes])
        sch.vectorize(lanes)
        sch.unroll(several)
        if (
            tiling.row is not None
            and tiling.rows > 1
            and len(loops) >= 2
            and int(sch.get(loops[-2]).extent) == tiling.rows
        ):
            sch.unroll(loops[-2])


def unroll_taps(sch: s_tir.Schedule, block: Block, reduced: list[Any], tiling: Tiling) -> None:
    """Unroll the innermost reduction axes while the body stays small."""
    body = tiling.rows * tiling.vectors
    for loop in reversed(reduced[1:] if len(reduced) > 1 else reduced):
        extent = int(sch.get(loop).extent)
        if body * extent > UNROLLED:
            break
        sch.unroll(loop)
        body *= extent


def vectorize_tail(sch: s_tir.Schedule, rv: Any, output: Any, machine: Machine) -> None:
    """Vectorise an output stage whose row length allows it; LLVM does it for the others."""
    block = Block(sch, output)
    loop = sch.get_loops(output)[-1]
    if any(sch.get(loop).same_as(sch.get(outer)) for outer in sch.get_loops(rv)):
        return  # one element at a time: the stage has no loop of its own
    lanes = machine.lanes(block.stores[0].buffer.dtype)
    if int(sch.get(loop).extent) % lanes == 0:
        sch.vectorize(sch.split(loop, [None, lanes])[1])
