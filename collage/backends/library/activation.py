"""GELU and SiLU, however a network spells them: the patterns of their spellings, and what a match computes.

Networks spell GELU in a dozen ways (x/2 (1 + erf(x/sqrt 2)), its factors in any order, the tanh formula). A pattern
only proposes operators; which function they are is found by their values: they are evaluated at some points, and
compared with `FUNCTIONS`. The frontend does not make nn.gelu of them: that would take away the candidates that begin or
end inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard

#: Variable inside a partition -> the call that it is bound to.
Bound = Mapping[Any, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


#: Name -> the function, in float64.
FUNCTIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * _sigmoid(x),
}
#: The forms of GELU differ by less than what constants in half precision cost: an operator tells which one it is.
_TELLING = {
    "relax.erf": "gelu",
    "relax.nn.gelu": "gelu",
    "relax.tanh": "gelu_tanh",
    "relax.nn.gelu_tanh": "gelu_tanh",
}
#: Elementwise operators that may be part of an activation, in float64.
ELEMENTWISE: Mapping[str, Callable[..., np.ndarray]] = {
    **{f"relax.nn.{name}": function for name, function in FUNCTIONS.items()},
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.sigmoid": _sigmoid,
    "relax.tanh": np.tanh,
    "relax.erf": _erf,
    "relax.clip": np.clip,
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.power": np.power,
}
#: Where functions are compared: both tails, and the bends.
POINTS = np.linspace(-9.0, 9.0, 145)


def silu_spellings(x: Any) -> Iterator[Any]:
    """Patterns of x sigmoid(x); every `x` is the same value."""
    yield is_op("relax.multiply")(x, is_op("relax.sigmoid")(x))


def gelu_spellings(x: Any, number: Callable[[], Any] = wildcard) -> Iterator[Any]:
    """Patterns of GELU by the error function, in single operators.

    Parameters
    ----------
    x
        Its argument; every `x` is the same value.
    number
        Makes the pattern of a constant.
    """
    scaled = is_op("relax.divide")(x, number()) | is_op("relax.multiply")(x, number())
    yield from _gated(x, is_op("relax.add")(is_op("relax.erf")(scaled), number()), number)


def gelu_tanh_spellings(x: Any, number: Callable[[], Any] = wildcard) -> Iterator[Any]:
    """Patterns of GELU by the hyperbolic tangent, with the cube as a power or as products; otherwise as
    `gelu_spellings`.
    """
    multiply, add = is_op("relax.multiply"), is_op("relax.add")
    cubes = (is_op("relax.power")(x, number()), multiply(x, multiply(x, x)))
    cubic = add(x, multiply(cubes[0], number())) | add(x, multiply(cubes[1], number()))
    yield from _gated(x, add(is_op("relax.tanh")(multiply(cubic, number())), number()), number)


def _gated(x: Any, gate: Any, number: Callable[[], Any]) -> Iterator[Any]:
    """Half of x times the gate, the factors in any order."""
    multiply = is_op("relax.multiply")
    yield multiply(multiply(x, gate), number())
    yield multiply(multiply(x, number()), gate)
    yield multiply(x, multiply(gate, number()))


def recognised(value: Any, source: Any, bound: Bound, tolerance: float) -> str | None:
    """The name in `FUNCTIONS` of what `value` is of `source`; None when it is none of them.

    Parameters
    ----------
    value, source
        Relax variables.
    bound
        Of the partition.
    tolerance
        Largest difference, relative to magnitudes above one; constants in half precision cost some digits.
    """
    found = values_of(value, source, bound, POINTS)
    if found is None:
        return None
    telling = {_TELLING[op] for op in _operators(value, source, bound) if op in _TELLING}
    names = sorted(telling) or list(FUNCTIONS)
    best = min(names, key=lambda name: distance(FUNCTIONS[name](POINTS), found))
    return best if distance(FUNCTIONS[best](POINTS), found) <= tolerance else None


def values_of(value: Any, source: Any, bound: Bound, points: np.ndarray) -> np.ndarray | None:
    """What `value` is where `source` is each of the points; None where it is no elementwise function of it alone."""
    with np.errstate(all="ignore"):
        result = _evaluated(value, source, bound, points)
    return None if result is None else np.asarray(result, dtype=np.float64)


def _evaluated(value: Any, source: Any, bound: Bound, points: np.ndarray) -> Any:
    if value.same_as(source):
        return points
    number = scalar(value)
    if number is not None:
        return number
    call = bound.get(value) if isinstance(value, relax.Var) else None
    function = ELEMENTWISE.get(operator(call))
    if call is None or function is None:
        return None
    arguments = [_evaluated(argument, source, bound, points) for argument in call.args]
    return None if any(argument is None for argument in arguments) else function(*arguments)


def _operators(value: Any, source: Any, bound: Bound) -> set[str]:
    """The operators between two variables, of a value that can be evaluated."""
    call = bound.get(value) if isinstance(value, relax.Var) and not value.same_as(source) else None
    inside = [_operators(argument, source, bound) for argument in call.args] if call is not None else []
    return set().union({operator(call)}, *inside)


def operator(call: Any) -> str:
    """The name of a call's operator, "" for what is no call of one."""
    op = getattr(call, "op", None)
    return str(op.name) if isinstance(op, tvm.ir.Op) else ""


def scalar(value: Any) -> float | None:
    """The number that a constant of one element, or a literal, stands for; None for tensors."""
    if isinstance(value, tvm.ir.GenericConst):
        array = value.value.numpy()
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    if isinstance(value, relax.Var):
        return None
    literal = getattr(value, "value", value)
    return float(literal) if isinstance(literal, (int, float)) else None


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """The largest difference, relative to magnitudes above one; infinite where a value is no number."""
    difference = float(np.max(np.abs(x - y) / np.maximum(1.0, np.abs(x))))
    return difference if math.isfinite(difference) else math.inf
