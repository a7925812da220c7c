"""What follows a convolution in one partition: bias, residual sum, activation, as steps in their order.

Each step reads the value of the step before it. The order is that of the network; the engine may reorder the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collage.backends.library.activation import recognised
from collage.backends.library.problem import (
    Binding,
    Operand,
    Unsupported,
    constant,
    dtype_of,
    is_same,
    operand,
    shape_of,
)
from collage.backends.library.view import View

Step = dict[str, Any]
#: A gate has no constants that may be rounded.
_EXACT = 1e-9


def _clip(call: Any) -> Step:
    bounds = [float(bound.value) if hasattr(bound, "value") else math.nan for bound in call.args[1:]]
    if len(bounds) != 2 or not bounds[0] <= bounds[1] or not all(map(math.isfinite, bounds)):
        raise Unsupported(f"clip with the bounds {bounds}")
    return {"mode": "clip", "low": bounds[0], "high": bounds[1]}


#: Operators of one tensor -> the step that they are.
ACTIVATIONS: Mapping[str, Callable[[Any], Step]] = {
    "relax.nn.relu": lambda call: {"mode": "relu"},
    "relax.clip": _clip,
    "relax.nn.leakyrelu": lambda call: {"mode": "leaky_relu", "slope": float(call.attrs.alpha)},
    "relax.sigmoid": lambda call: {"mode": "sigmoid"},
    "relax.tanh": lambda call: {"mode": "tanh"},
    "relax.nn.silu": lambda call: {"mode": "silu"},
    "relax.nn.gelu": lambda call: {"mode": "gelu"},
    "relax.nn.gelu_tanh": lambda call: {"mode": "gelu_tanh"},
}


def read_epilogue(
    anchor: Binding, rest: Sequence[Binding], result: View, channel_axis: int
) -> tuple[list[Step], dict[str, Operand]]:
    """The steps after a convolution, and the operands that they read.

    Parameters
    ----------
    anchor
        The convolution.
    rest
        The bindings after it.
    result
        The view of its result.
    channel_axis
        Where the channels are in the network's own layout.

    Raises
    ------
    Unsupported
        A binding is none of the steps, or there is more than one bias or residual.
    """
    steps: list[Step] = []
    operands: dict[str, Operand] = {}
    shape, current, pending = shape_of(anchor.call), anchor.var, list(rest)
    while pending:
        binding = pending.pop(0)
        if steps and steps[-1]["mode"] != "add":
            raise Unsupported("something follows the activation")
        if binding.op == "relax.add":
            role, added = _added(binding.call, current, rest, shape, result, channel_axis)
            if role in operands:
                raise Unsupported(f"more than one {role}")
            operands[role] = added
            steps.append({"mode": "add", "operand": role})
        elif binding.op not in ACTIVATIONS or not is_same(binding.call.args[0], current):
            raise Unsupported(f"{binding.op or 'a binding'} is no step of an epilogue")
        elif binding.op == "relax.sigmoid" and pending:
            product = pending.pop(0)
            if recognised(product.var, current, {b.var: b.call for b in (binding, product)}, _EXACT) != "silu":
                raise Unsupported("a sigmoid that is not the gate of its own argument")
            steps.append({"mode": "silu"})
            binding = product
        else:
            steps.append(ACTIVATIONS[binding.op](binding.call))
        current = binding.var
    return steps, operands


def _added(
    call: Any, current: Any, rest: Sequence[Binding], shape: tuple[int, ...], result: View, channel_axis: int
) -> tuple[str, Operand]:
    """The other operand of a sum: a bias per channel, or a residual of the result's own shape."""
    a, b = call.args
    other = b if is_same(a, current) else a
    if not is_same(a, current) and not is_same(b, current):
        raise Unsupported("a sum that does not read the value before it")
    if is_same(other, current) or any(is_same(other, binding.var) for binding in rest):
        raise Unsupported("a sum of two values of the partition itself")
    dtype_of(call, other)
    found, channels = shape_of(other), shape[channel_axis]
    per_channel = tuple(channels if axis == channel_axis else 1 for axis in range(len(shape)))
    if (1,) * (len(shape) - len(found)) + found == per_channel:
        return "bias", _bias(other, channels, result)
    if found != shape:
        raise Unsupported(f"a sum of shapes {shape} and {found}")
    return "residual", operand(other, result)


def _bias(expr: Any, channels: int, result: View) -> Operand:
    spatial = len(result.dims) - 2
    step = channels if result.strides[1] == 1 else 1
    view = View((1, channels, *([1] * spatial)), (channels, 1, *([step] * spatial)))
    value = constant(expr)
    return Operand(expr, view, None if value is None else value.reshape(channels), str(expr.ty.dtype))
