"""Functions of float32 that fast math takes too few digits for.

TVM has kernels for CUDA compiled with `--use_fast_math`. `tanhf` then is one instruction with a relative error of
2⁻¹¹, `sinf` and `cosf` lose digits with the size of the angle, and `powf` of a negative base is not a number, as
2 to the y times the logarithm of the base. What else becomes an approximate instruction (`ex2`, `lg2`, `rcp`, `rsqrt`,
`sqrt`, division) is right to about 2⁻²². NVRTC has no flag that takes the option back, and a library may be compiled
from its source where it is loaded, so the kernels themselves say what to compute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from collage.backends.tvm.vector_math import once, polynomial, tanh

#: Instructions of PTX that no kernel of a float32 network has.
TOO_FEW_DIGITS = ("tanh.approx", "sin.approx", "cos.approx")
#: π/2 in three parts of which a product with a small whole number is exact, and the polynomials of Cephes.
_QUARTERS = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def use_exact_math(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel with those of its float32 functions that fast math spoils as arithmetic."""

    def replace(call: ir.Call) -> Any:
        name = str(getattr(call.op, "name", "")).rpartition(".")[2]
        function = _FUNCTIONS.get(name)
        if function is None or str(call.ty) != str(ir.PrimType("float32")):
            return call
        return function(*call.args)

    return func.with_body(tvm_ffi.structural_map(func.body, (ir.Call, replace)))


def all_exact(mod: Any) -> Any:
    """A module with `use_exact_math` in each of its PrimFuncs."""
    kernels = {gv: use_exact_math(f) for gv, f in mod.functions_items() if isinstance(f, tirx.PrimFunc)}
    result = mod.clone()
    result.update(tvm.IRModule(kernels))
    return result


def sin(x: Any) -> Any:
    return _turned(x, 0)


def cos(x: Any) -> Any:
    return _turned(x, 1)


def tan(x: Any) -> Any:
    return once(x, lambda y: sin(y) / cos(y))


def power(base: Any, exponent: Any) -> Any:
    """|base| to the exponent, with the sign that a whole exponent gives; not a number for others of a negative base."""

    def signed(x: Any, y: Any) -> Any:
        half = y * _f(0.5)
        size = tirx.power(tirx.Select(x < _f(0.0), _f(0.0) - x, x), y)
        odd = tirx.Select(tirx.floor(half) == half, size, _f(0.0) - size)
        whole = tirx.Select(tirx.floor(y) == y, odd, _f(float("nan")))
        return tirx.Select(y == _f(0.0), _f(1.0), tirx.Select(x < _f(0.0), whole, size))

    return once(base, lambda x: once(exponent, lambda y: signed(x, y)))


def _turned(value: Any, quarters: int) -> Any:
    """The sine of so many quarters of a turn more than a value; for angles of up to some thousand turns."""

    def of(x: Any) -> Any:
        return once(tirx.floor(x * _f(0.6366197723675814) + _f(0.5)), lambda whole: rest_of(x, whole))

    def rest_of(x: Any, whole: Any) -> Any:
        rest = x
        for part in _QUARTERS:
            rest = rest - whole * _f(part)
        return once(rest, lambda r: once(r * r, lambda z: quadrant(whole.astype("int32") + _i(quarters), r, z)))

    def quadrant(turn: Any, r: Any, z: Any) -> Any:
        sine = r + r * z * polynomial(z, _SIN)
        cosine = _f(1.0) - z * _f(0.5) + z * z * polynomial(z, _COS)
        size = tirx.Select(tirx.bitwise_and(turn, _i(1)) == _i(0), sine, cosine)
        return once(size, lambda s: tirx.Select(tirx.bitwise_and(turn, _i(2)) == _i(0), s, _f(0.0) - s))

    return once(value, of)


def _f(value: float) -> tirx.FloatImm:
    return tirx.FloatImm("float32", value)


def _i(value: int) -> tirx.IntImm:
    return tirx.IntImm("int32", value)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"tanh": tanh, "sin": sin, "cos": cos, "tan": tan, "pow": power}
