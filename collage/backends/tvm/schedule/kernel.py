"""Schedules of CPU kernels by rule, without search: what makes TVM usable before it is tuned.

TVM leaves the kernels of a CPU unscheduled: one scalar loop nest per operator, on one thread, a hundred times slower
than the processor allows for a convolution. A rule looks at a kernel and either schedules all of it or declines; the
next one is asked, and a kernel that every rule declines stays as it is. Schedule primitives keep the meaning of a
kernel, so that a rule can be wrong about speed only. After TVM's dlight (`tvm.s_tir.dlight`), which has the idea but
few rules for CPUs.

A kernel is first brought into a normal form: fused producers are inlined where that repeats no work, so that what is
left is a sequence of loop nests.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func

from collage.backends.tvm.convolution import PADDED, ROWS
from collage.backends.tvm.schedule.blocks import Block
from collage.backends.tvm.schedule.machine import Machine, attempt, blocks_of
from collage.backends.tvm.schedule.nests import schedule_nests
from collage.backends.tvm.schedule.rows import schedule_rows


def schedule(func: tvm.tirx.PrimFunc, target: tvm.target.Target) -> tvm.tirx.PrimFunc:
    """The kernel, scheduled by the first rule that takes it; as it is when none does."""
    machine = Machine.of(target)
    normal = attempt(s_tir.Schedule(tvm.IRModule({"main": func})), normalize, machine)
    if normal is None:
        return func
    done = attempt(normal, schedule_rows, machine) or schedule_nests(normal, machine)
    return done.mod["main"].with_attrs(dict(func.attrs.items()))


def normalize(sch: s_tir.Schedule, machine: Machine) -> bool:
    """Normal form: no axes of extent 1, loops one to one with axes, producers inlined."""
    flatten_rows(sch)
    if normalize_prim_func(sch) is None:
        return False
    inline_producers(sch)
    return True


def flatten_rows(sch: s_tir.Schedule) -> None:
    """Let the `rows` stage of a convolution run over flat positions, like the sums that it copies."""
    for rv in blocks_of(sch):
        annotations = sch.get(rv).annotations
        if ROWS in annotations:
            sch.transform_block_layout(rv, _rows_to_flat(int(annotations[ROWS]), len(sch.get_loops(rv))))


def _rows_to_flat(stride: int, rank: int) -> tirx.IndexMap:
    return tirx.IndexMap.from_func(lambda *i: [*i[:-2], i[-2] * stride + i[-1]], ndim=rank, index_dtype="int64")


def inline_producers(sch: s_tir.Schedule) -> None:
    """Inline every stage that computes each element from its inputs alone, unless that repeats work."""
    waiting = blocks_of(sch)
    while waiting:
        rv = waiting.pop(0)
        if _worth_inlining(sch, rv):
            # A stage that TVM cannot inline (it is an output, or is read in an irregular way) stays.
            with contextlib.suppress(RuntimeError, ValueError):
                sch.compute_inline(rv)


def _worth_inlining(sch: s_tir.Schedule, rv: Any) -> bool:
    block = Block(sch, rv)
    annotations = block.stmt.annotations
    if not block.regular or block.reduced or PADDED in annotations or ROWS in annotations:
        return False
    consumers = [Block(sch, consumer) for consumer in sch.get_consumers(rv)]
    if not consumers or any(not consumer.regular for consumer in consumers):
        return False
    if block.heavy_calls and any(consumer.heavy_calls for consumer in consumers):
        return False  # functions of functions do not become vector arithmetic (`vector_math`)
    copies_only = not block.condition_vars and len(block.loads) <= 1 and block.heavy_calls == 0
    if all(not consumer.reduced for consumer in consumers):
        repeated = sum(consumer.elements for consumer in consumers) > block.elements
        return not (repeated and block.heavy_calls)
    # Into a reduction: only where every element is read once, or where nothing is computed.
    once = len(consumers) == 1 and consumers[0].elements <= block.elements
    return once or (copies_only and len(consumers) == 1 and _is_cast_or_copy(block))


def _is_cast_or_copy(block: Block) -> bool:
    return len(block.stores) == 1 and isinstance(block.stores[0].value, tvm.ir.TensorLoad)
