"""Scaled-dot-product attention as canonical Relax spells it: softmax(q kᵀ · scale + mask) v, one kernel of cuDNN.

The transpositions around it (of heads and sequence) are strides to cuDNN, so those next to the products may be inside;
so may slices before them, which take queries, keys and values out of one tensor. The keys' transposition has to be:
cuDNN reads rows of keys, the product reads columns. A mask may be added, or select: where it is false, a number so low
takes a score's place that the softmax makes 0 of it, and so does a sum with that number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collage.backends.library.operand_view import operand_view
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
from collage.errors import CodegenError

PERMUTE, PRODUCT, SOFTMAX = "relax.permute_dims", "relax.matmul", "relax.nn.softmax"
SLICE, SELECT = "relax.strided_slice", "relax.where"
#: What cuDNN's fused kernels take on devices from compute capability 9.0 on; 8 elements are the 16 bytes by which they
#: want pointers aligned.
_MAX_HEAD, _HEAD_MULTIPLE = 256, 8
#: What takes a score's place where a mask selects: far below all scores, also those of 16 bits.
_LOW = -1e4


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
    scores, mask = walk.optional_mask(softmax.call.args[0])
    product, scale = walk.optional_scale(scores)
    q, k = product.call.args
    dtype = dtype_of(q, k, v, last.call, *(value.expr for value in [mask] if value is not None))
    if dtype == "float32":
        raise Unsupported("attention in float32")
    views = {"q": walk.view(q), "k": walk.view(k, required=True), "v": walk.view(v)}
    operands = {role: operand(source, view) for role, (source, view) in views.items()}
    transposed = operands["k"].view
    swapped = View(_swap(transposed.dims), _swap(transposed.strides), transposed.offset)
    operands["k"] = operand(operands["k"].expr, swapped)
    if mask is not None:
        operands["mask"] = _broadcast(mask, shape)
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

    def optional_mask(self, expr: Any) -> tuple[Any, Operand | None]:
        """(scores, what is added to them or None)."""
        found = self.binding(expr)
        if found.op == SELECT:
            return found.call.args[1], _selecting(*found.call.args)
        if found.op != "relax.add":
            return expr, None
        a, b = found.call.args
        if (self.find(a) is None) == (self.find(b) is None):
            raise Unsupported("a mask that the attention computes itself")
        scores, mask = (a, b) if self.find(b) is None else (b, a)
        return scores, operand(mask, View.compact(shape_of(mask)))

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
        """What a product reads, before a slice and a transposition inside, and how cuDNN sees it."""
        if required and self.find(expr) is None:
            raise Unsupported("keys whose transposition is outside")
        try:
            return operand_view(expr, lambda value: None if self.find(value) is None else self.binding(value).call)
        except CodegenError as error:
            raise Unsupported(str(error)) from None

    def require_all_read(self) -> None:
        if len(self._seen) != len(self._bindings):
            raise Unsupported("a binding that is no part of an attention")


def _swap(extents: tuple[int, ...]) -> tuple[int, ...]:
    return (*extents[:-2], extents[-1], extents[-2])


def _selecting(condition: Any, scores: Any, low: Any) -> Operand:
    """What is added to scores instead of a selection between them and a low number."""
    kept, number = constant(condition), constant(low)
    if kept is None or number is None or number.size != 1 or float(number.reshape(-1)[0]) > _LOW:
        raise Unsupported("a selection that is no mask")
    if not kept.any(axis=-1).all():
        raise Unsupported("a mask that hides all keys of a query")
    added = np.where(kept, number.dtype.type(0), number.reshape(-1)[0])
    return Operand(low, View.compact(added.shape), added, str(low.ty.dtype))


def _broadcast(mask: Operand, shape: tuple[int, ...]) -> Operand:
    """A mask in the full extents, standing still where it is broadcast."""
    found = mask.view.dims
    padded = (1,) * (4 - len(found)) + found
    if len(padded) != 4 or any(given not in (1, full) for given, full in zip(padded, shape, strict=True)):
        raise Unsupported(f"a mask of shape {found} on scores of shape {shape}")
    if padded[3] != shape[3]:
        raise Unsupported("a mask that is the same for all keys")
    if mask.value is not None and not np.isfinite(mask.value.astype(np.float32)).any():
        raise Unsupported("a mask that hides everything")
    steps = [0 if extent == 1 else step for extent, step in zip(padded, compact(padded), strict=True)]
    return Operand(mask.expr, View(shape, tuple(steps)), mask.value, mask.dtype)


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
    views = [result, *(operands[role].view for role in expected)]
    if any(view.strides[-1] != 1 for view in views):
        raise Unsupported("a head whose elements do not lie together")
    if any(number % _HEAD_MULTIPLE for view in views for number in (view.offset, *view.strides[:-1])):
        raise Unsupported("heads that begin between multiples of 16 bytes")
