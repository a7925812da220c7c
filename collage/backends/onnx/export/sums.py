"""Sums between products in eight bits, as those of residual blocks, where a library wants them in eight bits, too.

ONNX Runtime computes a convolution in eight bits only where its result is quantised: a sum that stays in float32 keeps
all that feeds it there. OpenVINO is a tenth faster with sums in float32, which it computes with the convolution. What
values are rounded to is the range that each had in calibration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from collage.annotations.precision import UNKNOWN, Range

#: What libraries compute on bytes as they are, or beside a product.
_PASSED_BY = frozenset(f"relax.{name}" for name in ("nn.relu", "clip", "nn.max_pool2d"))


def is_sum(expr: Any) -> bool:
    """Whether a call adds two tensors of float32 of one shape, neither of them a constant."""
    if _operator(expr) != "relax.add" or not all(isinstance(operand, relax.Var) for operand in expr.args):
        return False
    one, other = (operand.ty for operand in expr.args)
    return str(one.dtype) == "float32" and bool(tvm_ffi.structural_equal(one, other))


def sums_between(bindings: Sequence[Any], products: Collection[int], ranges: Mapping[Any, Range]) -> set[int]:
    """Positions of the sums that are in eight bits, of the bindings of a function.

    Both operands have to come from products in eight bits, or from other such sums, and the sum to go to one; in
    between there may be a bias and what keeps bytes as they are. Where a network was calibrated, operands have ranges.

    Parameters
    ----------
    products
        Positions of the products in eight bits.
    ranges
        Of all variables.
    """
    calls = [bindings[position].value for position in products]
    wanted = {call.args[0] for call in calls if isinstance(call, relax.Call)}
    for binding in reversed(bindings):
        if binding.var in wanted and _operator(binding.value) in _PASSED_BY:
            wanted.add(binding.value.args[0])
    calibrated = any(ends != UNKNOWN for ends in ranges.values())
    made: set[Any] = set()
    found: set[int] = set()
    for position, binding in enumerate(bindings):
        value = binding.value
        if is_sum(value) and binding.var in wanted and made.issuperset(value.args):
            known = all(_known(ranges.get(operand, UNKNOWN)) for operand in value.args)
            found.update([position] if known or not calibrated else [])
        passed = _operator(value) in _PASSED_BY or _is_bias(value)
        if position in products or position in found or (passed and not made.isdisjoint(value.args)):
            made.add(binding.var)
    return found


def results_alone(
    bindings: Sequence[Any], products: Collection[int], sums: Collection[int], ranges: Mapping[Any, Range]
) -> set[int]:
    """Positions of what convolutions in eight bits give, after bias and clamp, that nobody else quantises.

    Parameters
    ----------
    products, sums
        Positions of the products, and of the sums, in eight bits.
    ranges
        Of all variables.
    """
    readers: dict[Any, list[int]] = {}
    for position, binding in enumerate(bindings):
        for operand in relax.analysis.free_vars(binding.value):
            readers.setdefault(operand, []).append(position)
    quantised = {bindings[position].value.args[0] for position in products}
    quantised.update(operand for position in sums for operand in bindings[position].value.args)
    calibrated = any(ends != UNKNOWN for ends in ranges.values())
    found: set[int] = set()
    for position in products:
        if not _operator(bindings[position].value).startswith("relax.nn.conv"):
            continue
        end = position
        while len(after := readers.get(bindings[end].var, [])) == 1 and _ends(bindings[after[0]].value):
            end = after[0]
        var = bindings[end].var
        if var not in quantised and (_known(ranges.get(var, UNKNOWN)) or not calibrated):
            found.add(end)
    return found


def _ends(expr: Any) -> bool:
    """Whether it is computed with a convolution: its bias, or a clamp."""
    return _is_bias(expr) or _operator(expr) in ("relax.nn.relu", "relax.clip")


def _is_bias(expr: Any) -> bool:
    return _operator(expr) == "relax.add" and any(isinstance(operand, tvm.ir.GenericConst) for operand in expr.args)


def _known(ends: Range) -> bool:
    return ends != UNKNOWN and all(map(math.isfinite, ends))


def _operator(expr: Any) -> str:
    op = getattr(expr, "op", None)
    return str(op.name) if isinstance(op, tvm.ir.Op) else ""
