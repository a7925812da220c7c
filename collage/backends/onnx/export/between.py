"""What lies between products in eight bits: sums, and what moves or selects numbers.

Quantising commutes with what moves or selects numbers. Where everything that reads such a result quantises it by one
range, the operands are quantised instead, by that range: the numbers are the same, a convolution writes bytes at once,
and pools and reshapes run on bytes.

A sum of residual blocks is in eight bits where both operands are quantised. OpenVINO computes it, and what comes after,
together with the convolution before it then, and only then. ONNX Runtime computes a convolution in eight bits only
where its result is quantised.

What is averaged over space, and comes from such a convolution or sum, is quantised, too: a mean of many numbers is off
by much less than one of them, and bytes are written instead of float32.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from collage.annotations.precision import UNKNOWN, Range

_SELECTING = frozenset((*(f"relax.nn.max_pool{n}d" for n in (1, 2, 3)), "relax.strided_slice"))
#: What gives numbers of its first operand, and no others.
_MOVING = _SELECTING | frozenset(
    f"relax.{name}"
    for name in ("reshape", "flatten", "nn.batch_flatten", "squeeze", "expand_dims", "permute_dims", "concat")
)
#: What averages numbers of its first operand.
_AVERAGING = frozenset(
    ("relax.mean", *(f"relax.nn.{name}{n}d" for name in ("avg_pool", "adaptive_avg_pool") for n in (1, 2, 3)))
)
#: Data reach about as far to one side of zero as to the other: steps of int8 are wider by a third at most.
_BALANCED = 0.5
_TRANSPOSED = frozenset(f"relax.nn.conv{n}d_transpose" for n in (1, 2, 3))


@dataclass(frozen=True)
class Bytes:
    """How data are held in eight bits.

    Attributes
    ----------
    ends
        Their range.
    signed
        Whether as int8, with as many steps above zero as below; else as uint8, with a zero of its own.
    """

    ends: Range
    signed: bool = False


@dataclass(frozen=True)
class Between:
    """What is read and written in eight bits in a function.

    Attributes
    ----------
    operands
        Position of a binding -> operand -> how it is quantised; of a tuple all its fields.
    moved
        Those positions whose result is in eight bits because their operands are.
    results
        Positions of what convolutions and sums give, after bias and clamp, that nobody quantises, and that is better
        quantised.
    """

    operands: Mapping[int, Mapping[int, Bytes]]
    moved: Mapping[int, Bytes]
    results: Collection[int]


def is_product_of_data(expr: Any) -> bool:
    """Whether a call multiplies matrices of float32 neither of which is a constant, as attention does."""
    if _operator(expr) != "relax.matmul" or not all(isinstance(operand, relax.Var) for operand in expr.args):
        return False
    ranks = {len(operand.ty.shape) for operand in expr.args if isinstance(operand.ty.shape, relax.ShapeExpr)}
    return len(ranks) == 1 and min(ranks) > 1 and {str(v.ty.dtype) for v in (*expr.args, expr)} == {"float32"}


def is_transposed(expr: Any) -> bool:
    """Whether a call is a transposed convolution."""
    return _operator(expr) in _TRANSPOSED


def is_sum(expr: Any) -> bool:
    """Whether a call adds two tensors of float32 of one shape with a position in space, neither of them a constant: as
    residual blocks do. Those of transformers go into norms, which are computed in float32.
    """
    if _operator(expr) != "relax.add" or not all(isinstance(operand, relax.Var) for operand in expr.args):
        return False
    one, other = (operand.ty for operand in expr.args)
    return str(one.dtype) == "float32" and one.ndim > 3 and bool(tvm_ffi.structural_equal(one, other))


def between(
    function: Any, labelled: Collection[int], ranges: Mapping[Any, Range], results: bool = False, signed: bool = False
) -> Between:
    """What is in eight bits in a function because some of its products and sums are.

    Parameters
    ----------
    labelled
        Positions of these products and sums.
    ranges
        Of all variables.
    results
        Whether the library wants all that convolutions give in eight bits, and not only what is averaged.
    signed
        Whether it is faster with data as int8, where they reach about as far below zero as above.
    """
    if not labelled:
        return Between({}, {}, ())
    operands: dict[int, Mapping[int, Bytes]] = {}
    flow = _Flow(function, labelled, ranges, signed)
    for position in labelled:
        call = flow.bindings[position].value
        operands[position] = flow.held(call)
    moved: dict[int, Bytes] = {}
    for position in reversed(range(len(flow.bindings))):
        wanted = None if position in operands else flow.wanted(position, operands)
        if wanted is not None:
            operands[position], moved[position] = {0: wanted}, wanted
    return Between(operands, moved, flow.results(operands, every=results))


class _Flow:
    """The bindings of a function, and who reads what."""

    def __init__(self, function: Any, labelled: Collection[int], ranges: Mapping[Any, Range], signed: bool) -> None:
        self.bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._labelled, self._ranges, self._signed = frozenset(labelled), ranges, signed
        self._calibrated = any(ends != UNKNOWN for ends in ranges.values())
        self._position = {binding.var: position for position, binding in enumerate(self.bindings)}
        #: Variable -> (position, operand) of all that read it; the function's result is at -1.
        self._readers: dict[Any, list[tuple[int, int]]] = {}
        for position, binding in enumerate(self.bindings):
            call = binding.value
            listed = enumerate(call.args) if isinstance(call, relax.Call) else [(-1, call)]
            for index, operand in listed:
                for variable in _variables(operand):
                    self._readers.setdefault(variable, []).append((position, index))
        for variable in _variables(function.body.body):
            self._readers.setdefault(variable, []).append((-1, -1))

    def range(self, variable: Any) -> Range:
        return self._ranges.get(variable, UNKNOWN)

    def held(self, call: Any) -> dict[int, Bytes]:
        """How a product or a sum reads its operands."""
        if is_sum(call):
            return {i: self._bytes(self.range(operand)) for i, operand in enumerate(call.args)}
        first = self.range(call.args[0])
        if not is_product_of_data(call) and not is_transposed(call):
            return {0: self._bytes(first)}
        # Libraries compute these in eight bits only of data without a zero of their own, the second ones as int8.
        held = {0: Bytes(first, signed=first == UNKNOWN or first[0] < 0)}
        return held if is_transposed(call) else {**held, 1: Bytes(self.range(call.args[1]), signed=True)}

    def _bytes(self, ends: Range) -> Bytes:
        shorter, longer = sorted((-ends[0], ends[1]))
        return Bytes(ends, signed=self._signed and 0 < _BALANCED * longer <= shorter)

    def wanted(self, position: int, operands: Mapping[int, Mapping[int, Bytes]]) -> Bytes | None:
        """How all that read a result quantise it, where its operands can be quantised instead."""
        binding = self.bindings[position]
        name = _operator(binding.value)
        asked = {operands.get(reader, {}).get(index) for reader, index in self._readers.get(binding.var, ())}
        if name not in _MOVING or len(asked) != 1:
            return None
        (wanted,) = asked
        given = binding.value.args[0]
        sources = list(given.fields) if isinstance(given, relax.Tuple) else [given]
        if not all(isinstance(s, relax.Var) and isinstance(s.ty, relax.TensorType) for s in sources):
            return None
        # Of what has other readers, quantising the smaller result is less work.
        if name in _SELECTING and any(len(self._readers[source]) > 1 for source in sources):
            return None
        return wanted

    def results(self, operands: Mapping[int, Mapping[int, Bytes]], every: bool) -> set[int]:
        """Positions of what convolutions and sums in eight bits give, after bias and clamp, that nobody quantises and
        that is only averaged; of convolutions also what is not, where `every` result is wanted.
        """
        found: set[int] = set()
        for position in self._labelled:
            call = self.bindings[position].value
            convolves = _operator(call).startswith("relax.nn.conv")
            if not convolves and not is_sum(call):
                continue
            end = position
            while len(after := self._readers.get(self.bindings[end].var, [])) == 1 and after[0][0] >= 0:
                if not _ends(self.bindings[after[0][0]].value):
                    break
                end = after[0][0]
            if not (every and convolves) and not self._is_averaged(after):
                continue
            read = any(index in operands.get(reader, {}) for reader, index in after)
            if not read and (not self._calibrated or _is_known(self.range(self.bindings[end].var))):
                found.add(end)
        return found

    def _is_averaged(self, readers: Sequence[tuple[int, int]]) -> bool:
        """Whether all that read a value average it over space."""
        return bool(readers) and all(
            position >= 0 and _operator(self.bindings[position].value) in _AVERAGING for position, _ in readers
        )


def _variables(expr: Any) -> Sequence[Any]:
    if isinstance(expr, relax.Var):
        return [expr]
    return list(relax.analysis.free_vars(expr)) if isinstance(expr, relax.Tuple | relax.TupleGetItem) else []


def _ends(expr: Any) -> bool:
    """Whether it is computed with a convolution: its bias, or a clamp."""
    return _is_bias(expr) or _operator(expr) in ("relax.nn.relu", "relax.clip")


def _is_bias(expr: Any) -> bool:
    return _operator(expr) == "relax.add" and sum(isinstance(o, tvm.ir.GenericConst) for o in expr.args) == 1


def _is_known(ends: Range) -> bool:
    return ends != UNKNOWN and all(map(math.isfinite, ends))


def _operator(expr: Any) -> str:
    op = getattr(expr, "op", None)
    return str(op.name) if isinstance(op, tvm.ir.Op) else ""
