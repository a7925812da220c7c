"""What follows a product in a CUTLASS partition: post(pre(product + bias) + residual).

Activations are recognised by their values. Networks spell GELU in a dozen ways (x/2 (1 + erf(x/√2)), its factors in any
order, the tanh formula); whatever elementwise function of one tensor there is, it is evaluated at some points and
compared with those that the kernels have (collage/runtime/cuda/cutlass/kernels/activation.h).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.library.activation import (
    ELEMENTWISE,
    POINTS,
    Bound,
    distance,
    recognised,
    scalar,
    values_of,
)
from collage.backends.library.composite import static_shape
from collage.errors import CodegenError

#: Number in kernel.h -> what it computes. Relu and clip are recognised by their limits.
_SMOOTH = {"gelu": 2, "gelu_tanh": 3, "silu": 4}
_NONE, _RELU, _CLIP = 0, 1, 5
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
    product
        The variable that the product is bound to.
    bias, residual
        Relax expressions, or None.
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
    products
        Operators in which the walk back from the result ends.
    is_bias
        Whether an addend (first argument) is a bias of the product's result (second), rather than a residual.

    Raises
    ------
    CodegenError
        It has another form, or an activation that the kernels do not have.
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
    if scalar(value) is not None:
        return []
    call = bound.get(value) if isinstance(value, relax.Var) else None
    if call is None or call.op.name not in ELEMENTWISE:
        return [value]
    tensors = [a for a in call.args if scalar(a) is None]
    if any(a not in bound for a in tensors):
        return [value]
    found: list[Any] = []
    for argument in tensors:
        found += [s for s in _sources(argument, bound) if not any(s.same_as(known) for known in found)]
    return found


def _recognised(value: Any, source: Any, bound: Bound) -> Activation:
    """The kernels' activation that `value` is of `source`."""
    tolerance = _TOLERANCE.get(str(source.ty.dtype), 0.0)
    name = recognised(value, source, bound, tolerance)
    if name is not None:
        return Activation(_SMOOTH[name])
    found = values_of(value, source, bound, np.array([-_FAR, _FAR, *POINTS]))
    if found is not None:
        low, high = (float(end) for end in found[:2])
        relu = low == 0 and high == _FAR
        expected = np.maximum(POINTS, 0) if relu else np.clip(POINTS, low, high)
        if (relu or low > -_FAR or high < _FAR) and distance(expected, found[2:]) <= tolerance:
            return Activation(_RELU) if relu else Activation(_CLIP, low, high)
    names = sorted({call.op.name for call in bound.values() if call.op.name in ELEMENTWISE})
    raise CodegenError(f"no activation of the kernels has the values of this one, made of {', '.join(names)}")
