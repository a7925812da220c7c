"""Reads a Relax function into a `DataflowGraph`: one node per binding, input and distinct constant.

The function is as `collage.load` leaves it: A-normal form, one dataflow block, weights inline as constants. A shape
expression, a data type or an inline tuple is part of the call that holds it and no node of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax
from tvm.tirx import IntImm

from collage.annotations.opaque import is_opaque, opaque_name
from collage.annotations.places import places_of
from collage.annotations.precision import UNKNOWN, Range, ranges_of, with_ranges
from collage.errors import FrontendError
from collage.graph.dataflow_graph import DataflowGraph, NodeSpec
from collage.graph.finite import with_finite_reads
from collage.graph.kinds import NodeKind, OpKind, ValueKind, call_kind


def read_graph(mod: tvm.IRModule, name: str = "main") -> DataflowGraph:
    """Return the dataflow graph of one Relax function.

    Parameters
    ----------
    mod
        Module in canonical form (`collage.frontend`).
    name
        Name of the function.

    Raises
    ------
    FrontendError
        There is no such Relax function, or it is not one dataflow block of calls, tuples and projections.
    """
    function = next((f for gvar, f in mod.functions.items() if gvar.name_hint == name), None)
    if not isinstance(function, relax.Function):
        found = ", ".join(sorted(gvar.name_hint for gvar in mod.functions))
        raise FrontendError(f"the module has no Relax function {name!r}; its functions are: {found}")
    blocks = [block for block in function.body.blocks if len(block.bindings)]
    if len(blocks) > 1 or any(not isinstance(block, relax.DataflowBlock) for block in blocks):
        raise FrontendError(
            f"the body of {name!r} must be one dataflow block and has {len(blocks)} blocks "
            f"({', '.join(type(block).__name__ for block in blocks)}); "
            "bring the module into canonical form with collage.load"
        )
    reader = _Reader(mod)
    listed = [binding for block in blocks for binding in block.bindings]
    ranges = ranges_of(mod) if name == "main" else []
    ranges = ranges or [UNKNOWN] * (len(function.params) + len(listed))
    if len(ranges) != len(function.params) + len(listed):
        raise FrontendError("the module was changed after it was calibrated: load and calibrate it again")
    for parameter, ends in zip(function.params, ranges, strict=False):
        value = _value_kind(parameter.ty)
        spec = NodeSpec(NodeKind.INPUT, "input", (), OpKind.ELEMENTWISE, parameter, None, value, range=ends)
        reader.add(spec, parameter)
    places = places_of(mod) if name == "main" else ()
    if places and len(places) != len(listed):
        raise FrontendError(
            "the module was changed after its devices were read: annotate it again, and load it with collage.load"
        )
    for binding, place, ends in zip(listed, places or [""] * len(listed), ranges[len(function.params) :], strict=True):
        reader.bind(binding, place, ends)
    escaping = list(reader.sources(function.body.body))
    return DataflowGraph(with_finite_reads(reader.specs), escaping)


def with_node_ranges(mod: tvm.IRModule, ranges: Mapping[int, Range]) -> tvm.IRModule:
    """The module with ranges of some values, by their nodes in its graph; of the others nothing is known."""
    by_var = {node.var: ranges[node.index] for node in read_graph(mod).nodes if node.index in ranges}
    main = mod["main"]
    variables = [*main.params, *(binding.var for block in main.body.blocks for binding in block.bindings)]
    return with_ranges(mod, [by_var.get(variable, UNKNOWN) for variable in variables])


class _Reader:
    """The nodes made so far, and which node each variable and constant is."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod
        self.specs: list[NodeSpec] = []
        self.index_of: dict[Any, int | None] = {}

    def add(self, spec: NodeSpec, key: Any) -> int:
        self.specs.append(spec)
        self.index_of[key] = len(self.specs) - 1
        return len(self.specs) - 1

    def bind(self, binding: relax.VarBinding, place: str, ends: Range) -> None:
        var, value = binding.var, binding.value
        if not isinstance(binding, relax.VarBinding):
            raise FrontendError(f"binding of {var.name}: {type(binding).__name__} is not supported in a dataflow graph")
        if isinstance(value, (relax.Var, tvm.ir.GenericConst)):
            self.index_of[var] = next(self.sources(value), None)
            return
        if isinstance(value, (relax.ShapeExpr, tvm.ir.StringImm)):
            self.index_of[var] = None
            return
        inputs = tuple(dict.fromkeys(self.sources(value)))
        produced, size = _value_kind(var.ty), bytes_of(var.ty)
        if isinstance(value, relax.Call):
            kind = call_kind(value, self.mod)
            self.add(
                NodeSpec(NodeKind.CALL, operator_name(value), inputs, kind, var, value, produced, size, place, ends),
                var,
            )
        elif isinstance(value, relax.Tuple):
            self.add(NodeSpec(NodeKind.TUPLE, "tuple", inputs, OpKind.TUPLE, var, value, produced, size), var)
        elif isinstance(value, relax.TupleGetItem):
            self.add(
                NodeSpec(
                    NodeKind.TUPLE_GET, "tuple_get", inputs, OpKind.INJECTIVE, var, value, produced, size, range=ends
                ),
                var,
            )
        else:
            raise FrontendError(
                f"binding of {var.name}: {type(value).__name__} is not a call, a tuple or a projection; "
                "bring the module into canonical form with collage.load"
            )

    def sources(self, expr: tvm.ir.Expr) -> Iterator[int]:
        """The nodes that an expression reads, in order, with repetitions; a new constant becomes a node."""
        if isinstance(expr, relax.Var):
            if expr not in self.index_of:
                raise FrontendError(
                    f"variable {expr.name} is used before it is bound, or is bound outside the function"
                )
            index = self.index_of[expr]
            if index is not None:
                yield index
        elif isinstance(expr, tvm.ir.GenericConst):
            index = self.index_of.get(expr)
            yield self.add(_constant(expr), expr) if index is None else index
        elif isinstance(expr, relax.Call):
            for argument in expr.args:
                yield from self.sources(argument)
        elif isinstance(expr, relax.Tuple):
            for field in expr.fields:
                yield from self.sources(field)
        elif isinstance(expr, relax.TupleGetItem):
            yield from self.sources(expr.tuple_value)


def _value_kind(ty: tvm.ir.Type) -> ValueKind:
    if isinstance(ty, relax.TupleType):
        return ValueKind.TUPLE
    return ValueKind.TENSOR if isinstance(ty, relax.TensorType) else ValueKind.OTHER


def bytes_of(ty: tvm.ir.Type) -> int:
    """Of a value of this type; 0 where that is not known before the network runs."""
    if isinstance(ty, relax.TupleType):
        return sum(map(bytes_of, ty.fields))
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return 0
    extents = list(ty.shape.values)
    if not all(isinstance(extent, IntImm) for extent in extents):
        return 0
    elements = math.prod(int(extent) for extent in extents)
    return elements * ((int(tvm.DataType(ty.dtype).bits) + 7) // 8)


def _constant(expr: tvm.ir.GenericConst) -> NodeSpec:
    return NodeSpec(NodeKind.CONSTANT, "constant", (), OpKind.ELEMENTWISE, None, expr)


def operator_name(call: relax.Call) -> str:
    """The operator of a call: "relax.nn.conv2d"; "onnx.LSTM" of an opaque node; "call_tir:<PrimFunc>";
    "call:<function>" for a call of a Relax function.
    """
    if isinstance(call.op, tvm.ir.Op):
        if is_opaque(call):
            return opaque_name(call)
        if call.op.name in ("relax.call_tir", "relax.call_tir_inplace"):
            return f"call_tir:{call.args[0].name_hint}"
        return str(call.op.name)
    name = (
        getattr(call.op, "name_hint", None) or getattr(call.op, "global_symbol", None) or getattr(call.op, "name", "?")
    )
    return f"call:{name}"
