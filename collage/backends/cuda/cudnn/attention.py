"""Scaled-dot-product attention as canonical Relax spells it: softmax(q kᵀ · scale + mask) v, one kernel of cuDNN.

The transpositions around it (of heads and sequence) are strides to cuDNN, so those next to the products may be inside.
The keys' one has to be: cuDNN reads rows of keys, the product reads columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collage.backends.library.problem import (
    Binding,
    Operand,
    Problem,
    Unsupported,
    constant,
    dtype_of,
    is_same,
    operand,
    shape_of,
)
from collage.backends.library.view import View, compact

PERMUTE, PRODUCT, SOFTMAX = "relax.permute_dims", "relax.matmul", "relax.nn.softmax"
#: What cuDNN's fused kernels take on devices from compute capability 9.0 on.
_MAX_HEAD, _HEAD_MULTIPLE = 256, 8


def read_attention(bindings: Sequence[Binding]) -> Problem:
    """The problem of an attention.

    Raises
    ------
    Unsupported
        Float32 (cuDNN's fused kernels take half precision only), or an extent or layout that they do not take.
    """
    walk = _Walk(bindings)
    last = walk.binding(bindings[-1].var)
    permuted = last.op == PERMUTE
    mixed = walk.expect(last.call.args[0] if permuted else last.var, PRODUCT)
    weights, v = mixed.call.args
    softmax = walk.expect(weights, SOFTMAX)
    shape = shape_of(softmax.call)
    if len(shape) != 4 or int(softmax.call.attrs.axis) % 4 != 3:
        raise Unsupported("the softmax is not over the keys of a tensor of rank 4")
    scores, mask = walk.optional_sum(softmax.call.args[0])
    product, scale = walk.optional_scale(scores)
    q, k = product.call.args
    dtype = dtype_of(q, k, v, last.call, *(value for value in [mask] if value is not None))
    if dtype == "float32":
        raise Unsupported("attention in float32")
    views = {"q": walk.view(q), "k": walk.view(k, required=True), "v": walk.view(v)}
    operands = {role: operand(source, view) for role, (source, view) in views.items()}
    transposed = operands["k"].view
    swapped = View(_swap(transposed.dims), _swap(transposed.strides))
    operands["k"] = operand(operands["k"].expr, swapped)
    if mask is not None:
        operands["mask"] = _mask(mask, shape)
    result = _result(last, permuted, shape_of(mixed.call))
    walk.require_all_read()
    _check(operands, result, shape)
    return Problem("attention", dtype, operands, result, {"scale": scale})


class _Walk:
    """Goes from the result to the operands, and remembers which bindings it has seen."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._bindings = list(bindings)
        self._seen: list[Binding] = []

    def find(self, expr: Any) -> Binding | None:
        return next((b for b in self._bindings if is_same(b.var, expr)), None)

    def binding(self, expr: Any) -> Binding:
        found = self.find(expr)
        if found is None:
            raise Unsupported("a value from outside where the attention's own is expected")
        if found not in self._seen:
            self._seen.append(found)
        return found

    def expect(self, expr: Any, op: str) -> Binding:
        found = self.binding(expr)
        if found.op != op:
            raise Unsupported(f"{found.op} where {op} is expected")
        return found

    def optional_sum(self, expr: Any) -> tuple[Any, Any]:
        """(scores, mask or None)."""
        found = self.binding(expr)
        if found.op != "relax.add":
            return expr, None
        a, b = found.call.args
        if (self.find(a) is None) == (self.find(b) is None):
            raise Unsupported("a mask that the attention computes itself")
        return (a, b) if self.find(b) is None else (b, a)

    def optional_scale(self, expr: Any) -> tuple[Binding, float]:
        found = self.binding(expr)
        if found.op == PRODUCT:
            return found, 1.0
        if found.op not in ("relax.multiply", "relax.divide"):
            raise Unsupported(f"{found.op} where {PRODUCT} is expected")
        a, b = found.call.args
        if self.find(a) is None and found.op == "relax.multiply":
            a, b = b, a
        value = constant(b)
        if value is None or value.size != 1:
            raise Unsupported("a scale that is no constant number")
        number = float(value.reshape(-1)[0])
        if not math.isfinite(number) or number <= 0:
            raise Unsupported(f"the scale {number}")
        return self.expect(a, PRODUCT), number if found.op == "relax.multiply" else 1 / number

    def view(self, expr: Any, required: bool = False) -> tuple[Any, View]:
        """What a product reads, before a transposition inside, and how cuDNN sees it."""
        found = self.find(expr)
        if found is None:
            if required:
                raise Unsupported("keys whose transposition is outside")
            shape = shape_of(expr)
            return expr, View(shape, compact(shape))
        transposition = self.expect(expr, PERMUTE)
        (source,) = transposition.call.args
        if self.find(source) is not None:
            raise Unsupported("an operand that the attention computes itself")
        shape, strides = shape_of(source), compact(shape_of(source))
        axes = [int(a) for a in transposition.call.attrs.axes or reversed(range(len(shape)))]
        return source, View(tuple(shape[a] for a in axes), tuple(strides[a] for a in axes))

    def require_all_read(self) -> None:
        if len(self._seen) != len(self._bindings):
            raise Unsupported("a binding that is no part of an attention")


def _swap(extents: tuple[int, ...]) -> tuple[int, ...]:
    return (*extents[:-2], extents[-1], extents[-2])


def _mask(mask: Any, shape: tuple[int, ...]) -> Operand:
    found = shape_of(mask)
    padded = (1,) * (4 - len(found)) + found
    if len(padded) != 4 or any(given not in (1, full) for given, full in zip(padded, shape, strict=True)):
        raise Unsupported(f"a mask of shape {found} on scores of shape {shape}")
    if padded[3] != shape[3]:
        raise Unsupported("a mask that is the same for all keys")
    value = constant(mask)
    if value is not None and not np.isfinite(value.astype(np.float32)).any():
        raise Unsupported("a mask that hides everything")
    # The full extents, standing still where the mask is broadcast.
    steps = [0 if extent == 1 else step for extent, step in zip(padded, compact(padded), strict=True)]
    return Operand(mask, View(shape, tuple(steps)), value, str(mask.ty.dtype))


def _result(last: Binding, permuted: bool, shape: tuple[int, ...]) -> View:
    """The view of what is written: of the product's extents, wherever a transposition after it puts them."""
    if not permuted:
        return View(shape, compact(shape))
    axes = [int(a) for a in last.call.attrs.axes or reversed(range(len(shape)))]
    strides = compact(shape_of(last.call))
    return View(shape, tuple(strides[axes.index(axis)] for axis in range(len(shape))))


def _check(operands: dict[str, Operand], result: View, scores: tuple[int, ...]) -> None:
    batch, heads, queries, keys = scores
    head, width = operands["q"].view.dims[-1], operands["v"].view.dims[-1]
    expected = {
        "q": (batch, heads, queries, head),
        "k": (batch, heads, keys, head),
        "v": (batch, heads, keys, width),
    }
    if any(operands[role].view.dims != dims for role, dims in expected.items()):
        raise Unsupported("queries, keys and values of different heads")
    if any(extent > _MAX_HEAD or extent % _HEAD_MULTIPLE for extent in (head, width)):
        raise Unsupported(f"heads of {head} and {width} elements")
    if any(view.strides[-1] != 1 for view in (result, *(operands[role].view for role in expected))):
        raise Unsupported("a head whose elements do not lie together")
