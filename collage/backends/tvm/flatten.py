"""Addresses of kernels that walk memory in one direction: one position instead of a row and a column.

A schedule fuses the axes that a kernel walks as if they were one, and splits vectors off. Every axis is then a quotient
or a remainder of the fused position. TVM simplifies each by itself before it adds them up to an address, and where a
vector does not divide rows (16 lanes, 28 or 56 columns) it no longer sees that the sum is the position: it makes
sixteen addresses and moves the elements one by one, at a third of the speed. Here the sum is taken before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, sym, tirx


def flatten_addresses(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel, with accesses to its arguments that go by a fused position indexed by that position.

    It is the last index, and may exceed its axis: the others are zero, and arguments have no gaps between rows.
    """
    arguments = [buffer for buffer in func.params if _is_compact(buffer)]

    def replace(realize: s_tir.SBlockRealize) -> Any:
        return _flattened(realize, arguments)

    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlockRealize, replace)))


def _flattened(realize: s_tir.SBlockRealize, arguments: Sequence[Any]) -> Any:
    """The block, with one more axis, where it has a fused position: that."""
    block = realize.block
    bound = {
        it.var: (int(it.dom.extent), value) for it, value in zip(block.iter_vars, realize.iter_values, strict=True)
    }
    fused = {var: pair for var, pair in bound.items() if _divisions(pair[1])}
    position = _position([value for _, value in fused.values()])
    if position is None:
        return realize
    extent = tirx.IntImm(str(position.ty), prod(size for size, _ in fused.values()))
    axis = tirx.IterVar(ir.Range(0, extent), tirx.Var("position", position.ty), tirx.IterVar.DataPar)
    analyzer = sym.Analyzer()
    values = {var: _replaced(value, position, axis.var) for var, (_, value) in fused.items()}
    seen = False

    def at(buffer: Any, indices: Sequence[Any]) -> list[Any] | None:
        nonlocal seen
        if len(indices) < 2 or not any(buffer.same_as(argument) for argument in arguments):
            return None
        offset: Any = indices[0]
        for index, size in zip(indices[1:], list(buffer.shape)[1:], strict=True):
            offset = offset * size + index
        found = analyzer.simplify(_substituted(offset, values))
        if _divisions(found) or not _mentions(found, axis.var):
            return None
        seen = True
        return [*(tirx.IntImm(str(index.ty), 0) for index in indices[:-1]), found]

    def load(node: ir.TensorLoad) -> Any:
        indices = at(node.source, node.indices)
        return node if indices is None else node.source.vload(indices)

    def store(node: tirx.BufferStore) -> Any:
        indices = at(node.buffer, node.indices)
        return node if indices is None else tirx.BufferStore(node.buffer, node.value, indices)

    body = tvm_ffi.structural_map(block.body, [(ir.TensorLoad, load), (tirx.BufferStore, store)])
    if not seen:
        return realize
    kept = (block.init, block.alloc_buffers, block.match_buffers, block.annotations)
    axes = [*block.iter_vars, axis]
    flat = s_tir.SBlock(axes, block.reads, block.writes, block.name_hint, body, *kept)
    return s_tir.SBlockRealize([*realize.iter_values, position], realize.predicate, flat)


def _is_compact(argument: Any) -> bool:
    return isinstance(argument.ty, tirx.BufferType) and not argument.strides and _is_zero(argument.elem_offset)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value.value) == 0


def _position(values: Sequence[Any]) -> Any:
    """What all the values are quotients and remainders of, if it is one sum; None otherwise."""
    found = [node.a for value in values for node in _divisions(value) if not _divisions(node.a)]
    if not found or not isinstance(found[0], tirx.Add):
        return None  # a single variable is one to TVM as well
    return found[0] if all(tvm_ffi.structural_equal(found[0], other) for other in found[1:]) else None


def _divisions(expr: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, [(tirx.FloorDiv, found.append), (tirx.FloorMod, found.append)])
    return found


def _mentions(expr: Any, var: Any) -> bool:
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (ir.Var, found.append))
    return any(var.same_as(other) for other in found)


def _replaced(expr: Any, part: Any, var: Any) -> Any:
    return tvm_ffi.structural_map(
        expr, (type(part), lambda node: var if tvm_ffi.structural_equal(node, part) else node)
    )


def _substituted(expr: Any, values: Mapping[Any, Any]) -> Any:
    return tvm_ffi.structural_map(expr, (ir.Var, lambda var: values.get(var, var)))
