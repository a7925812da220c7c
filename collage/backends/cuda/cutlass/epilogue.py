"""What follows a product in a CUTLASS partition: post(pre(product + bias) + residual).

Activations are recognised by their values. Networks spell GELU in a dozen ways (x/2 (1 + erf(x/√2)), its factors in any
order, the tanh formula); whatever elementwise function of one tensor there is, it is evaluated at some points and
compared with those that the kernels have (collage/runtime/cuda/cutlass/kernels/activation.h).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.library.composite import static_shape
from collage.errors import CodegenError

#: Variable inside the partition -> the call that it is bound to.
Bound = Mapping[Any, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


#: Elementwise operators that may be part of an activation, in float64.
_ELEMENTWISE: Mapping[str, Callable[..., np.ndarray]] = {
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.nn.gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "relax.nn.gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relax.nn.silu": lambda x: x * _sigmoid(x),
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
#: Number in kernel.h -> what it computes. Relu and clip are told by their limits.
_SMOOTH = {2: "relax.nn.gelu", 3: "relax.nn.gelu_tanh", 4: "relax.nn.silu"}
_NONE, _RELU, _CLIP = 0, 1, 5
#: Where functions are compared: both tails, and the bends.
_POINTS = np.linspace(-9.0, 9.0, 145)
_FAR = 1e4
#: Constants of a model in half precision are rounded to 11 or 8 bits.
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 8e-3}


@dataclass(frozen=True)
class Activation:
    """An elementwise function by its number in kernel.h; `low` and `high` bound a clip."""

    function: int = _NONE
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class Epilogue:
    """What follows the product.

    Attributes
    ----------
    product: the variable that the product is bound to.
    bias, residual: Relax expressions, or None.
    """

    product: Any
    bias: Any = None
    pre: Activation = Activation()
    residual: Any = None
    post: Activation = Activation()


def read_epilogue(result: Any, bound: Bound, products: frozenset[str], is_bias: Callable[[Any, Any], bool]) -> Epilogue:
    """The epilogue whose last value is `result`.

    Parameters
    ----------
    products: operators in which the walk back from the result ends.
    is_bias: whether an addend (first argument) is a bias of the product's result (second), rather than a residual.

    Raises
    ------
    CodegenError: it has another form, or an activation that the kernels do not have.
    """
    steps: list[tuple[str, Any]] = []
    value = result
    while True:
        source = _source(value, bound)
        if source is not value:
            steps.append(("activation", _recognised(value, source, bound)))
        call = bound[source]
        if call.op.name in products:
            break
        if call.op.name != "relax.add":
            raise CodegenError(f"{call.op.name} cannot follow a product in one kernel")
        inside = [argument for argument in call.args if argument in bound]
        if len(inside) != 1:
            raise CodegenError("an addition in the epilogue has one operand of the partition and one from outside")
        value = inside[0]
        steps.append(("addend", next(a for a in call.args if not a.same_as(value))))
    return _placed(source, list(reversed(steps)), is_bias)


def _placed(product: Any, steps: list[tuple[str, Any]], is_bias: Callable[[Any, Any], bool]) -> Epilogue:
    """The steps, in order of execution, in the places that the kernels have for them."""
    place: dict[str, Any] = {}
    for kind, value in steps:
        if kind == "activation":
            name = "post" if "residual" in place else "pre"
        elif is_bias(value, product) and "bias" not in place and "pre" not in place and "post" not in place:
            name = "bias"  # also after a residual: they are added without an activation between
        else:
            name = "residual"
            if static_shape(value) is None or _extents(value) != _extents(product):
                raise CodegenError("an addend in the epilogue is neither a bias nor of the result's shape")
        if name in place or (name == "residual" and "post" in place):
            raise CodegenError("the epilogue has more steps than the kernels have places for")
        place[name] = value
    return Epilogue(product, **place)


def _extents(value: Any) -> tuple[int, ...]:
    """The shape without leading ones, which broadcasting ignores."""
    shape = static_shape(value) or ()
    first = next((i for i, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[first:]


def _source(value: Any, bound: Bound) -> Any:
    """The one tensor of which `value` is an elementwise function; `value` itself where it is not computed by one."""
    sources = _sources(value, bound)
    if len(sources) != 1 or sources[0] not in bound:
        raise CodegenError("the epilogue is no elementwise function of one tensor")
    return sources[0]


def _sources(value: Any, bound: Bound) -> list[Any]:
    if _scalar(value) is not None:
        return []
    call = bound.get(value) if isinstance(value, relax.Var) else None
    if call is None or call.op.name not in _ELEMENTWISE:
        return [value]
    tensors = [a for a in call.args if _scalar(a) is None]
    if any(a not in bound for a in tensors):
        return [value]
    found: list[Any] = []
    for argument in tensors:
        found += [s for s in _sources(argument, bound) if not any(s.same_as(known) for known in found)]
    return found


def _scalar(value: Any) -> float | None:
    """The number that a constant of one element, or a literal, stands for; None for tensors."""
    if isinstance(value, tvm.ir.GenericConst):
        array = value.value.numpy()
        return float(array.reshape(-1)[0]) if array.size == 1 else None
    if isinstance(value, relax.Var):
        return None
    literal = getattr(value, "value", value)
    return float(literal) if isinstance(literal, (int, float)) else None


def _recognised(value: Any, source: Any, bound: Bound) -> Activation:
    """The kernels' activation that `value` is of `source`."""

    def function(points: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(_evaluate(value, source, points, bound), dtype=np.float64)

    tolerance = _TOLERANCE.get(str(source.ty.dtype), 0.0)
    found = function(_POINTS)
    low, high = (float(end) for end in function(np.array([-_FAR, _FAR])))
    candidates: list[tuple[Activation, np.ndarray]] = [
        (Activation(number), _ELEMENTWISE[name](_POINTS)) for number, name in _SMOOTH.items()
    ]
    if low == 0 and high == _FAR:
        candidates.append((Activation(_RELU), np.maximum(_POINTS, 0)))
    elif low > -_FAR or high < _FAR:
        candidates.append((Activation(_CLIP, low, high), np.clip(_POINTS, low, high)))
    best, expected = min(candidates, key=lambda candidate: _distance(candidate[1], found))
    if not _distance(expected, found) <= tolerance:
        names = sorted({call.op.name for call in bound.values() if call.op.name in _ELEMENTWISE})
        raise CodegenError(f"no activation of the kernels has the values of this one, made of {', '.join(names)}")
    return best


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    """The largest difference, relative to magnitudes above one; infinite where a value is no number."""
    difference = float(np.max(np.abs(x - y) / np.maximum(1.0, np.abs(x))))
    return difference if math.isfinite(difference) else math.inf


def _evaluate(value: Any, source: Any, points: np.ndarray, bound: Bound) -> Any:
    number = _scalar(value)
    if number is not None:
        return number
    if value.same_as(source):
        return points
    call = bound[value]
    return _ELEMENTWISE[call.op.name](*(_evaluate(a, source, points, bound) for a in call.args))
