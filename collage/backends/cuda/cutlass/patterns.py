"""The patterns of the CUTLASS backend: a product, and what may follow it in the same kernel.

A pattern only proposes a set of operators; whether a kernel computes them is for `read_computation` to say, which also
tells a bias from a residual and one activation from another. So there is one pattern for each shape of the chain.
After TVM's table (tvm/relax/backend/cuda/cutlass.py), with 1x1 convolutions in NCHW and GELU in single operators added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from tvm.relax.dpl import is_op, wildcard

#: What may follow a product, in order: "+" adds a tensor, "f" applies an activation.
_CHAINS = ("", "+", "f", "+f", "++", "f+", "+f+", "f+f", "++f", "+f+f")
_NAMES = {"+": "add", "f": "activation"}


def patterns() -> Iterator[tuple[str, Any]]:
    """(label, `tvm.relax.dpl` pattern) of each chain after each product."""
    for (name, anchor), chain in product(_anchors(), _CHAINS):
        value = anchor
        for step in chain:
            value = is_op("relax.add")(value, wildcard()) if step == "+" else _activation(value)
        yield "_".join([f"cutlass.{name}", *(_NAMES[step] for step in chain)]), value


def _anchors() -> Sequence[tuple[str, Any]]:
    matmul = is_op("relax.matmul")
    return (
        ("matmul", matmul(wildcard(), wildcard())),
        ("matmul_transposed", matmul(wildcard(), is_op("relax.permute_dims")(wildcard()))),
        ("conv2d", is_op("relax.nn.conv2d")(wildcard(), wildcard())),
    )


def _activation(x: Any) -> Any:
    """An operator, or the operators in which networks spell one. Every `x` is the same value."""
    multiply, add, divide, wild = is_op("relax.multiply"), is_op("relax.add"), is_op("relax.divide"), wildcard
    single = [is_op(f"relax.nn.{name}")(x) for name in ("relu", "gelu", "gelu_tanh", "silu")]
    clip = is_op("relax.clip")(x, wild(), wild())
    swish = multiply(x, is_op("relax.sigmoid")(x))
    scaled = divide(x, wild()) | multiply(x, wild())
    normal = add(is_op("relax.erf")(scaled), wild())
    cubic = add(x, multiply(is_op("relax.power")(x, wild()), wild())) | add(
        x, multiply(multiply(x, multiply(x, x)), wild())
    )
    logistic = add(is_op("relax.tanh")(multiply(cubic, wild())), wild())
    gelus = [
        form
        for cumulative in (normal, logistic)
        for form in (
            multiply(multiply(x, cumulative), wild()),
            multiply(multiply(x, wild()), cumulative),
            multiply(x, multiply(cumulative, wild())),
        )
    ]
    either = single[0]
    for alternative in (*single[1:], clip, swish, *gelus):
        either = either | alternative
    return either
