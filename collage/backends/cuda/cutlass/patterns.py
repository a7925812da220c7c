"""The patterns of the CUTLASS backend: a product, and what may follow it in the same kernel.

A pattern only proposes a set of operators; whether a kernel computes them is for `read_computation` to say, which also
distinguishes a bias from a residual and one activation from another. There is one pattern for each shape of the chain.
After TVM's table (tvm/relax/backend/cuda/cutlass.py), with 1x1 convolutions in NCHW and GELU in single operators added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from operator import or_
from typing import Any

from tvm.relax.dpl import is_op, wildcard

from collage.backends.library.activation import gelu_spellings, gelu_tanh_spellings, silu_spellings

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
    single = [is_op(f"relax.nn.{name}")(x) for name in ("relu", "gelu", "gelu_tanh", "silu")]
    clip = is_op("relax.clip")(x, wildcard(), wildcard())
    return reduce(or_, (*single, clip, *silu_spellings(x), *gelu_spellings(x), *gelu_tanh_spellings(x)))
