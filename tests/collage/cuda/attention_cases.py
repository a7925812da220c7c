"""Attentions of one partition each, for the cuDNN backend, which computes them in half precision only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from cudnn_cases import Case, Emit, Weights
from tvm import relax

op, nn = relax.op, relax.op.nn


class Extents(NamedTuple):
    """Of queries, keys and values."""

    batch: int = 2
    heads: int = 3
    sequence: int = 8
    head: int = 16


def with_mask(extents: Extents, mask: tuple[int, ...] = ()) -> Case:
    """Of tensors of their own, with a mask of this shape that is added."""

    def body(emit: Emit, w: Weights, q: Any, k: Any, v: Any, *masks: Any) -> Any:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = emit(op.multiply(scores, relax.const(0.25, w.dtype)))
        for value in masks:
            scores = emit(op.add(scores, value))
        return op.matmul(emit(nn.softmax(scores, -1)), v)

    def expected(w: Weights, q: np.ndarray, k: np.ndarray, v: np.ndarray, *masks: np.ndarray) -> np.ndarray:
        return _mixed(q @ k.swapaxes(2, 3) * 0.25 + sum(masks), v)

    batch, heads, sequence, head = extents
    shapes = ((batch, heads, sequence, head),) * 3 + ((mask,) if mask else ())
    return Case(body, shapes, "cudnn.attention", expected)


def selecting(extents: Extents, low: float = -65504.0) -> Case:
    """As GPT-2 is exported: a score that is hidden is replaced, not added to."""
    causal = np.tri(extents.sequence, dtype=np.bool_)[None, None]

    def body(emit: Emit, w: Weights, q: Any, k: Any, v: Any) -> Any:
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = emit(op.divide(scores, relax.const(4.0, w.dtype)))
        kept = emit(op.where(relax.const(causal), scores, relax.const(low, w.dtype)))
        return op.matmul(emit(nn.softmax(kept, -1)), v)

    def expected(w: Weights, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return _mixed(np.where(causal, q @ k.swapaxes(2, 3) * 0.25, -np.inf), v)

    batch, heads, sequence, head = extents
    return Case(body, ((batch, heads, sequence, head),) * 3, "cudnn.attention", expected)


def packed(extents: Extents, begins: tuple[int, int, int] | None = None) -> Case:
    """Queries, keys and values are heads of one tensor, which begin at these."""
    batch, heads, sequence, head = extents
    begins = begins or (0, heads, 2 * heads)

    def body(emit: Emit, w: Weights, x: Any) -> Any:
        q, k, v = (emit(op.strided_slice(x, [2], [begin], [begin + heads])) for begin in begins)
        q, v = (emit(op.permute_dims(part, [0, 2, 1, 3])) for part in (q, v))
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 2, 3, 1]))))
        scores = emit(op.multiply(scores, relax.const(0.25, w.dtype)))
        return op.permute_dims(emit(op.matmul(emit(nn.softmax(scores, -1)), v)), [0, 2, 1, 3])

    def expected(w: Weights, x: np.ndarray) -> np.ndarray:
        q, k, v = (x[:, :, begin : begin + heads].transpose(0, 2, 1, 3) for begin in begins)
        return _mixed(q @ k.swapaxes(2, 3) * 0.25, v).transpose(0, 2, 1, 3)

    return Case(body, ((batch, sequence, max(begins) + heads, head),), "cudnn.attention", expected)


def _mixed(scores: np.ndarray, v: np.ndarray) -> np.ndarray:
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


#: Name -> network of these extents.
ATTENTIONS: Mapping[str, Callable[[Extents], Case]] = {
    "attention": with_mask,
    "attention with a mask of each sequence": lambda e: with_mask(e, (e.batch, 1, 1, e.sequence)),
    "attention with a mask of all": lambda e: with_mask(e, (e.sequence, e.sequence)),
    "attention with a mask of each head": lambda e: with_mask(e, (1, e.heads, e.sequence, e.sequence)),
    "attention whose mask selects": selecting,
    "attention whose mask selects, by infinity": lambda e: selecting(e, -np.inf),
    "attention out of one tensor": packed,
    "attention out of one tensor, in another order": lambda e: packed(e, (e.heads + 1, 1, 3 * e.heads)),
}
