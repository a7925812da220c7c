"""A matrix product and what libraries compute along with it: the chain of operators, read from Relax.

    act(alpha * lhs x rhs + bias + residual)

Operands may be sliced and permuted first, the result permuted or reshaped; none of it moves anything, it is numbers in
the product's layout. The same reading serves the check of a pattern's match and the making of a partition's blob, so
that what is offered is what can be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from collage.backends.library.activation import recognised, scalar
from collage.backends.library.composite import dtype_of, static_shape
from collage.backends.library.matmul.layout import MatmulLayout, UnsupportedLayout, matmul_layout, output_view
from collage.backends.library.operand_view import operand_view
from collage.errors import CodegenError

#: Half-precision networks hold the constants of GELU to three digits.
_GELU_TOLERANCE = 2e-3


@dataclass(frozen=True)
class MatmulChain:
    """What a partition around one product computes.

    Attributes
    ----------
    lhs, rhs
        The operands, before they are sliced and permuted.
    layout
        How the matrices lie in memory.
    bias
        A vector along the last axis, or None.
    residual
        A tensor as large as the result that is added to it, or None.
    alpha
        Factor of the product.
    activation
        "none", "relu", "gelu" (by the error function) or "gelu_tanh".
    permuted
        The result is stored permuted.
    """

    lhs: Any
    rhs: Any
    layout: MatmulLayout
    bias: Any = None
    residual: Any = None
    alpha: float = 1.0
    activation: str = "none"
    permuted: bool = False

    @property
    def label(self) -> str:
        """The parts in the order of computation, such as "matmul_bias_relu"."""
        activation = {"none": "", "relu": "relu", "gelu_tanh": "gelu", "gelu": "gelu_erf"}[self.activation]
        parts = [("scale", self.alpha != 1.0), ("permute", self.permuted), ("bias", self.bias is not None)]
        parts += [("residual", self.residual is not None), (activation, bool(activation))]
        return "_".join(["matmul", *(name for name, there in parts if there)])


def read_chain(bound: Mapping[Any, Any]) -> MatmulChain:
    """Read the calls of a partition.

    Parameters
    ----------
    bound
        Variable -> call, in order, of all operators inside.

    Raises
    ------
    CodegenError
        They are not one product with an epilogue of the form above; the message says what does not fit.
    """
    products = [(var, call) for var, call in bound.items() if call.op.name == "relax.matmul"]
    if len(products) != 1:
        raise CodegenError(f"one product is expected, not {len(products)}")
    ((current, matmul),) = products
    (lhs, lhs_view), (rhs, rhs_view) = (operand_view(value, _call_in(bound)) for value in matmul.args)
    permuting = _reader(current, bound)
    out_axes = _axes(permuting[1]) if permuting and permuting[1].op.name == "relax.permute_dims" else None
    try:
        layout = matmul_layout(lhs_view, rhs_view, output_view(_shape(matmul), out_axes))
    except UnsupportedLayout as error:
        raise CodegenError(f"matmul of {lhs_view.dims} and {rhs_view.dims}: {error}") from error
    chain = MatmulChain(lhs, rhs, layout, permuted=out_axes is not None)
    if permuting and out_axes is not None:
        current = permuting[0]
    return _read_epilogue(chain, current, bound)


def _read_epilogue(chain: MatmulChain, current: Any, bound: Mapping[Any, Any]) -> MatmulChain:
    while True:
        readers = [(var, call) for var, call in bound.items() if _reads(call, current)]
        if not readers:
            return chain
        if chain.permuted or chain.activation != "none":
            raise CodegenError(f"{readers[0][1].op.name} follows the end of the product's epilogue")
        if len(readers) > 1:
            activation = recognised(list(bound)[-1], current, bound, _GELU_TOLERANCE)
            if activation not in ("gelu", "gelu_tanh"):
                raise CodegenError("the operators after the product are no form of GELU")
            return replace(chain, activation=activation)
        ((var, call),) = readers
        chain = _with(chain, call, current)
        current = var


def _with(chain: MatmulChain, call: Any, current: Any) -> MatmulChain:
    """The chain with one more operator."""
    name = call.op.name.removeprefix("relax.")
    if name == "reshape":
        return chain
    if name == "nn.relu":
        return replace(chain, activation="relu")
    if name in ("nn.gelu", "nn.gelu_tanh"):
        return replace(chain, activation=name.removeprefix("nn."))
    if name in ("multiply", "divide") and chain.bias is None and chain.residual is None:
        factor = scalar(call.args[1] if call.args[0].same_as(current) else call.args[0])
        inverse = name == "divide" and call.args[0].same_as(current)
        if factor is not None and np.isfinite(factor) and factor != 0 and (name == "multiply" or inverse):
            return replace(chain, alpha=chain.alpha * (1 / factor if inverse else factor))
    if name == "add":
        return _with_sum(chain, call, current)
    raise CodegenError(f"{name} is no part of a product's epilogue")


def _with_sum(chain: MatmulChain, call: Any, current: Any) -> MatmulChain:
    other = call.args[1] if call.args[0].same_as(current) else call.args[0]
    shape, own = _shape(other), _shape(current)
    if dtype_of(other) != dtype_of(current) or prod(_shape(call)) != prod(own):
        raise CodegenError(f"a tensor of shape {shape} that is added to the product is neither bias nor residual")
    vector = bool(shape) and prod(shape) == shape[-1] == own[-1] == chain.layout.n
    if vector and chain.bias is None and chain.residual is None:
        return replace(chain, bias=other)
    if prod(shape) == prod(own) and chain.residual is None:
        return replace(chain, residual=other)
    raise CodegenError(f"a tensor of shape {shape} that is added to the product is neither bias nor residual")


def _call_in(bound: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda value: bound.get(value) if isinstance(value, relax.Var) else None


def _axes(call: Any) -> list[int]:
    rank = len(_shape(call))
    if call.attrs.axes is None:
        return list(range(rank))[::-1]
    return [int(axis) % rank for axis in call.attrs.axes]


def _reader(var: Any, bound: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    """The one call that reads a variable, and what it is bound to; None when there are none or several."""
    readers = [(result, call) for result, call in bound.items() if _reads(call, var)]
    return readers[0] if len(readers) == 1 else None


def _reads(call: Any, var: Any) -> bool:
    return any(argument.same_as(var) for argument in call.args)


def _shape(value: Any) -> tuple[int, ...]:
    shape = static_shape(value)
    if shape is None:
        raise CodegenError("the product's shapes are not static")
    return shape
