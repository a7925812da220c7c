"""Transcendental functions of float32 as arithmetic, so that they run in vectors.

TVM leaves `exp`, `erf`, `tanh` and `sigmoid` to the C library, one call per element: a softmax or a GELU then takes
ten times as long as its memory traffic. The approximations are those of Cephes (`expf`) and Eigen (rational `tanh`
and `erf`), all within a few units in the last place, and, unlike those of TVM's `FastMathTransform`, right for
infinities and for not-a-number as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

_LN2_HIGH, _LN2_LOW, _LOG2E = 0.693359375, -2.12194440e-4, 1.44269504088896341
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_TANH_ABOVE = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_ABOVE = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_BELOW = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)


def use_vector_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with its float32 transcendental functions replaced by arithmetic.

    A function of a function keeps its outer call: TVM's LLVM code generator expands let-expressions into each other,
    in time exponential in their nesting. The schedule rules do not make such expressions
    (`schedule.kernel.inline_producers`).
    """

    def replace(call: ir.Call) -> Any:
        name = str(getattr(call.op, "name", "")).rpartition(".")[2]
        if name not in _FUNCTIONS or str(call.ty) != str(ir.PrimType("float32")):
            return call
        nested: list[Any] = []
        tvm_ffi.structural_walk(call.args[0], (tirx.Let, nested.append))
        return call if nested else once(call.args[0], _FUNCTIONS[name])

    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, replace)))


def once(value: Any, body: Callable[[Any], Any]) -> Any:
    """`body` of a value that is computed once, however often the body names it."""
    if isinstance(value, (ir.Var, tirx.FloatImm)):
        return body(value)
    var = tirx.Var("value", value.ty)
    return tirx.Let(var, value, body(var))


def exp(x: Any) -> Any:
    """e to the x: a power of two, in two factors so that neither overflows, times a polynomial of the rest."""
    limited = tirx.min(tirx.max(x, _f(-104.0)), _f(89.0))

    def scaled(whole: Any) -> Any:
        power = whole.astype("int32")
        rest = x - whole * _f(_LN2_HIGH) - whole * _f(_LN2_LOW)
        value = once(rest, lambda r: polynomial(r, _EXP) * r * r + r + _f(1.0))
        return once(power, lambda p: once(tirx.shift_right(p, _i(1)), lambda h: value * _two_to(h) * _two_to(p - h)))

    return tirx.Select(x < _f(-104.0), _f(0.0), once(tirx.floor(limited * _f(_LOG2E) + _f(0.5)), scaled))


def sigmoid(x: Any) -> Any:
    return _f(1.0) / (_f(1.0) + once(_f(0.0) - x, exp))


def tanh(x: Any) -> Any:
    return _rational(x, 9.0, _TANH_ABOVE, _TANH_BELOW)


def erf(x: Any) -> Any:
    return _rational(x, 4.0, _ERF_ABOVE, _ERF_BELOW)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's scheme, highest power first."""
    value = _f(coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + _f(coefficient)
    return value


def _rational(x: Any, limit: float, above: Sequence[float], below: Sequence[float]) -> Any:
    """An odd function that is constant beyond a limit, as a quotient of polynomials in the square."""
    # Not a number passes: unlike `min` and `max`, these comparisons keep it.
    limited = tirx.Select(x < _f(-limit), _f(-limit), tirx.Select(x > _f(limit), _f(limit), x))

    def quotient(y: Any) -> Any:
        return once(y * y, lambda square: y * polynomial(square, above) / polynomial(square, below))

    return once(limited, quotient)


def _two_to(power: Any) -> Any:
    return tirx.reinterpret("float32", tirx.shift_left(power + _i(127), _i(23)))


def _f(value: float) -> tirx.FloatImm:
    return tirx.FloatImm("float32", value)


def _i(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {"exp": exp, "sigmoid": sigmoid, "tanh": tanh, "erf": erf}
