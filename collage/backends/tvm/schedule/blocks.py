"""What the schedule rules have to know of a block of loops: its axes, and how it walks through memory along each of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

#: Calls that take tens of instructions.
_HEAVY = frozenset(
    {
        "exp",
        "exp2",
        "exp10",
        "erf",
        "tanh",
        "sigmoid",
        "log",
        "log2",
        "log10",
        "log1p",
        "pow",
        "sin",
        "cos",
        "tan",
        "atan",
    }
)
#: Points at which an index expression is evaluated to find its stride.
_SAMPLES = (0, 1, 5, 12, 31)


@dataclass(frozen=True)
class Axis:
    """One iteration axis of a block and the loop that runs it; `kind` is "S" (spatial), "R" (reduction) or "O"
    (anything else).
    """

    var: Any
    extent: int
    kind: str
    loop: Any


class Block:
    """A block of a schedule whose loops run its axes one to one (`normalize_prim_func`).

    Attributes
    ----------
    rv
        The schedule's handle.
    axes
        Outermost first.
    loads, stores
        The indexed accesses to buffers in its body.
    """

    def __init__(self, sch: s_tir.Schedule, rv: Any) -> None:
        self.rv = rv
        self.stmt = sch.get(rv)
        loops = sch.get_loops(rv)
        self.aligned = len(loops) == len(self.stmt.iter_vars)
        self.axes: list[Axis] = []
        if self.aligned:
            for loop, it in zip(loops, self.stmt.iter_vars, strict=True):
                kind = {tirx.IterVar.DataPar: "S", tirx.IterVar.CommReduce: "R"}.get(it.iter_type, "O")
                self.axes.append(Axis(it.var, int(it.dom.extent), kind, loop))

    @property
    def spatial(self) -> list[Axis]:
        return [axis for axis in self.axes if axis.kind == "S"]

    @property
    def reduced(self) -> list[Axis]:
        return [axis for axis in self.axes if axis.kind == "R"]

    @property
    def regular(self) -> bool:
        """Whether every axis is spatial or a reduction, and every loop runs one of them."""
        return self.aligned and all(axis.kind != "O" for axis in self.axes)

    @cached_property
    def loads(self) -> list[Any]:
        found: list[Any] = []
        tvm_ffi.structural_walk(self.stmt.body, (ir.TensorLoad, found.append))
        written = [store.buffer for store in self.stores]
        return [load for load in found if not any(load.source.same_as(buffer) for buffer in written)]

    @cached_property
    def stores(self) -> list[Any]:
        found: list[Any] = []
        tvm_ffi.structural_walk(self.stmt.body, (tirx.BufferStore, found.append))
        return found

    @cached_property
    def heavy_calls(self) -> int:
        """Transcendental functions per element."""
        names: list[str] = []
        tvm_ffi.structural_walk(self.stmt.body, (ir.Call, lambda call: names.append(str(getattr(call.op, "name", "")))))
        return sum(name.rpartition(".")[2] in _HEAVY for name in names)

    @cached_property
    def condition_vars(self) -> list[Any]:
        """Axes on which a choice between values depends."""
        found: list[Any] = []

        def choice(call: Any) -> None:
            if str(getattr(call.op, "name", "")) == "prim.if_then_else":
                tvm_ffi.structural_walk(call.args[0], (ir.Var, found.append))

        tvm_ffi.structural_walk(self.stmt.body, (ir.Call, choice))
        return found

    def depends_on_choice(self, axis: Axis) -> bool:
        return any(axis.var.same_as(var) for var in self.condition_vars)

    def stride(self, access: Any, axis: Axis) -> int | None:
        """How many elements further an access lies for the next value of an axis; None when that is not a constant."""
        buffer = access.source if isinstance(access, ir.TensorLoad) else access.buffer
        return stride(access.indices, buffer.shape, axis, self.axes)

    @property
    def elements(self) -> int:
        """Points of the iteration space."""
        return prod(axis.extent for axis in self.axes)


def stride(indices: Sequence[Any], shape: Sequence[Any], axis: Axis, axes: Sequence[Axis]) -> int | None:
    """The constant stride of an access along one axis, from its values at a few points; None when it has none."""
    steps: set[int] = set()
    for sample in _SAMPLES:
        point = {other.var: sample % other.extent for other in axes}
        point[axis.var] = sample % max(axis.extent - 1, 1)
        here = _offset(indices, shape, point)
        there = _offset(indices, shape, {**point, axis.var: point[axis.var] + 1})
        if here is None or there is None:
            return None
        steps.add(there - here)
    return steps.pop() if len(steps) == 1 else None


def _offset(indices: Sequence[Any], shape: Sequence[Any], point: Mapping[Any, int]) -> int | None:
    offset = 0
    for index, extent in zip(indices, shape, strict=True):
        value = _evaluate(index, point)
        if value is None or not isinstance(extent, tirx.IntImm):
            return None
        offset = offset * int(extent) + value
    return offset


def _evaluate(expr: Any, point: Mapping[Any, int]) -> int | None:
    """The value of an index expression; None when it is more than arithmetic on the axes."""
    if isinstance(expr, tirx.IntImm):
        return int(expr.value)
    if isinstance(expr, ir.Var):
        return point.get(expr)
    if isinstance(expr, tirx.Cast):
        return _evaluate(expr.value, point)
    operation = _ARITHMETIC.get(type(expr).__name__)
    if operation is None:
        return None
    a, b = _evaluate(expr.a, point), _evaluate(expr.b, point)
    if a is None or b is None:
        return None
    return int(operation(a, b))


_ARITHMETIC: dict[str, Any] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": min,
    "Max": max,
}
