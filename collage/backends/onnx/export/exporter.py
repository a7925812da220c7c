"""Walk a Relax function and write it as an ONNX model, one converter per call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relax

from collage.annotations.opaque import is_opaque, opaque_name, tensors_of
from collage.annotations.precision import INT8_POSITIONS, INT8_RANGES, UNKNOWN, Range
from collage.backends.onnx.export import (
    activations,
    creation,
    elementwise,
    layers,
    movement,
    opaque,
    quantisation,
    reduction,
    windows,
)
from collage.backends.onnx.export.between import Bytes, between
from collage.backends.onnx.export.conversion import (
    Conversion,
    Unsupported,
    any_type,
    open_types,
    static_type,
    static_types,
    table,
)
from collage.backends.onnx.export.graph import GraphBuilder, Value, Values
from collage.backends.onnx.export.quantisation import (
    Int8Conversion,
    already_quantised,
    quantised_data,
    takes_int8,
)
from collage.errors import CodegenError

_FAMILIES = (elementwise, activations, windows, layers, movement, creation, reduction, quantisation, opaque)
_TABLE = table(*(entry for family in _FAMILIES for entry in family.CONVERTERS.items()))


def supported_operators() -> frozenset[str]:
    """The Relax operators that have a converter; a particular call may still be refused."""
    return frozenset(_TABLE)


def export_onnx(
    func: Any, mod: Any = None, name: str = "main", int8_results: bool = False, int8_signed: bool = False
) -> onnx.ModelProto:
    """The ONNX model of a Relax function.

    Parameters
    ----------
    func
        Function whose parameters are tensors and become the inputs, in order; its body is a flow of calls in A-normal
        form; constants are inline and become initializers; the returned tensor, or flat tuple of tensors, the outputs.
        Attributes may say that some products and sums are in eight bits (`collage.annotations.precision`).
    mod
        The module it belongs to; only used in messages, as calls of other functions are refused.
    name
        Of the ONNX graph.
    int8_results
        Whether the library wants all that convolutions give in eight bits
        (`collage.backends.onnx.export.between`).
    int8_signed
        Whether it is faster with data as int8.

    Raises
    ------
    CodegenError
        An operator, or a use of one, has no exact counterpart, or the constants exceed 2 GiB.
    """
    graph = GraphBuilder(name)
    env: dict[Any, Value | Values] = {}

    def lookup(operand: Any) -> Value | Values:
        if isinstance(operand, tvm.ir.GenericConst):
            return _constant(graph, operand)
        if isinstance(operand, relax.Tuple):
            return _flat(lookup, operand)
        if isinstance(operand, relax.TupleGetItem):
            return lookup(operand.tuple_value)[operand.index]
        if operand in env:
            return env[operand]
        raise Unsupported(f"the operand {operand} is no tensor of this function")

    for parameter in func.params:
        with _Naming(f"{name}: parameter {parameter.name}"):
            kind = any_type(parameter.ty)  # its readers look closer
        env[parameter] = graph.input(kind.shape, kind.dtype)
    used = {var for block in func.body.blocks for b in block.bindings for var in relax.analysis.free_vars(b.value)}
    for parameter in func.params:
        if parameter not in used and not parameter.same_as(func.body.body):
            # OpenVINO would drop the input, and the positions of the others would shift.
            raise CodegenError(f"{name}: parameter {parameter.name} is not used")
    listed = [binding for block in func.body.blocks for binding in block.bindings]
    labelled, ranges = _int8(func, listed)
    int8 = between(func, labelled, ranges, int8_results, int8_signed)
    for position, binding in enumerate(listed):
        with _Naming(f"{name}: {_operator(binding.value)}, bound to {binding.var.name}"):
            if not isinstance(binding, relax.VarBinding):
                raise Unsupported("a cast of a shape")
            if position in labelled and not takes_int8(binding.value, every=True):
                raise Unsupported("it cannot be in eight bits")
            env[binding.var] = value = _convert(binding.value, graph, lookup, int8.operands.get(position))
            if position in int8.moved and not int8_results:  # a library that wants it quantises once more
                already_quantised(graph, str(value), int8.moved[position])
            if position in int8.results:
                env[binding.var] = quantised_data(graph, str(value), Bytes(ranges.get(binding.var, UNKNOWN)))
    with _Naming(f"{name}: the result"):
        result = lookup(func.body.body)
        names = result if isinstance(result, tuple) else (result,)
        for value, (shape, dtype) in zip(names, open_types(func.body.body.ty), strict=True):
            graph.output(value, shape, dtype)
    return graph.build()


def unsupported_reason(node: Any, mod: Any = None) -> str | None:
    """Why a call cannot be exported; None when it can. A dry run of the converter itself.

    Parameters
    ----------
    node
        A Relax expression in A-normal form, or a `DataflowNode`.
    mod
        Accepted for symmetry with `export_onnx`; calls of the module's other functions are refused.
    """
    expr = getattr(node, "expr", node)
    graph = GraphBuilder("dry run")

    def lookup(operand: Any) -> Value | Values:
        if isinstance(operand, tvm.ir.GenericConst):
            kind = any_type(operand.ty)
            return graph.constant(np.empty(kind.shape, dtype=kind.dtype), key=(operand,))
        if isinstance(operand, relax.Tuple):
            return _flat(lookup, operand)
        kinds = open_types(operand.ty)
        return (
            tuple(f"operand_{i}" for i in range(len(kinds))) if isinstance(operand.ty, relax.TupleType) else "operand"
        )

    try:
        _convert(expr, graph, lookup)
    except Unsupported as refusal:
        return f"{_operator(expr)}: {refusal}"
    return None


def _int8(function: Any, bindings: Sequence[Any]) -> tuple[frozenset[int], dict[Any, Range]]:
    """Positions of the bindings that are in eight bits, and the ranges of all variables."""
    attrs = function.attrs or {}
    if INT8_POSITIONS not in attrs:
        return frozenset(), {}
    ends = [float(end) for end in attrs[INT8_RANGES]]
    variables = [*function.params, *(binding.var for binding in bindings)]
    ranges = dict(zip(variables, zip(ends[::2], ends[1::2], strict=True), strict=True))
    return frozenset(map(int, attrs[INT8_POSITIONS])), ranges


def _convert(expr: Any, graph: GraphBuilder, lookup: Any, int8: Mapping[int, Bytes] | None = None) -> Value | Values:
    """Write one bound expression and return the name(s) of its value; in eight bits where that is said of operands."""
    if isinstance(expr, relax.Tuple | relax.TupleGetItem | relax.Var | tvm.ir.GenericConst):
        open_types(expr.ty)
        value: Value | Values = lookup(expr)
        return value
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.Op):
        raise Unsupported("not a call of a Relax operator")
    converter = _TABLE.get(expr.op.name)
    if converter is None or (expr.op.name == "relax.call_pure_packed" and not is_opaque(expr)):
        raise Unsupported("the exporter has no converter for it")
    if is_opaque(expr):
        open_types(expr.ty)
        for operand in tensors_of(expr):
            any_type(operand.ty)
        return converter(Conversion(expr, graph, lookup))
    for operand in expr.args:
        if isinstance(operand.ty, relax.TensorType):
            static_type(operand.ty)
    expected = static_types(expr.ty)
    conversion = Conversion(expr, graph, lookup) if int8 is None else Int8Conversion(expr, graph, lookup, int8)
    result = converter(conversion)
    if isinstance(expr.ty, relax.TupleType) != isinstance(result, tuple) or (
        isinstance(result, tuple) and len(result) != len(expected)
    ):
        raise Unsupported("its result has an unexpected structure")
    return result


def _flat(lookup: Any, operand: Any) -> Values:
    names = tuple(lookup(field) for field in operand.fields)
    if any(isinstance(name, tuple) for name in names):
        raise Unsupported("a nested tuple")
    return names


def _constant(graph: GraphBuilder, constant: Any) -> Value:
    """One initializer per weight, however often it is used; the array is viewed, not copied."""
    kind = any_type(constant.ty)
    data = np.from_dlpack(constant.value)
    return graph.constant(data, key=("weight", data.ctypes.data, kind.shape, kind.dtype))


def _operator(expr: Any) -> str:
    op = getattr(expr, "op", None)
    if is_opaque(expr):
        return opaque_name(expr)
    return op.name if isinstance(op, tvm.ir.Op) else type(expr).__name__


class _Naming:
    """Says of which operator a refusal speaks."""

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Unsupported):
            raise CodegenError(f"{self._subject}: {error}") from None
