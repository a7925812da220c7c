"""Which values of a network are finite, overflow apart: libraries get maxima of infinities wrong.

Inputs of floating point may be infinite: masks are. Each value has a lower bound, because roots, and quotients by what
may be zero, are only finite of what is positive. A value that may be infinite has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collage.graph.dataflow_graph import NodeSpec
from collage.graph.kinds import NodeKind

#: Operators that libraries compute wrongly where all elements are infinite.
_EXTREMA = ("relax.max", "relax.min")
#: The elements of the result are elements of operands.
_MOVES = frozenset(
    (
        *("tuple", "tuple_get", "relax.nn.batch_flatten", "relax.nn.max_pool2d"),
        *("relax.max", "relax.min", "relax.mean", "relax.minimum", "relax.where"),
        *("relax.reshape", "relax.flatten", "relax.squeeze", "relax.expand_dims", "relax.permute_dims"),
        *("relax.broadcast_to", "relax.repeat", "relax.tile", "relax.flip", "relax.strided_slice", "relax.concat"),
        *("relax.stack", "relax.split", "relax.take"),
    )
)
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
#: Lower bounds of results.
_AT_LEAST = {
    **dict.fromkeys((f"relax.{name}" for name in (*_COMPARISONS, "abs", "square", "sigmoid", "variance")), 0.0),
    **dict.fromkeys(("relax.nn.relu", "relax.nn.softmax"), 0.0),
    **dict.fromkeys((f"relax.{name}" for name in ("tanh", "erf", "sin", "cos")), -1.0),
    **dict.fromkeys(("relax.subtract", "relax.negative", "relax.clip", "relax.matmul"), -math.inf),
    **dict.fromkeys(
        (
            f"relax.nn.{name}"
            for name in (
                *("conv1d", "conv2d", "conv3d", "avg_pool2d", "adaptive_avg_pool2d", "leakyrelu"),
                *("gelu", "gelu_tanh", "silu", "layer_norm", "group_norm"),
            )
        ),
        -math.inf,
    ),
}


def with_finite_reads(specs: Sequence[NodeSpec]) -> Sequence[NodeSpec]:
    """The specs of a graph, in topological order, of which extrema say whether all that they read is finite."""
    if not any(spec.op in _EXTREMA for spec in specs):
        return specs  # without a look at all weights
    bounds: list[float | None] = []
    found = []
    for spec in specs:
        operands = [bounds[i] for i in spec.inputs]
        bounds.append(_bound(spec, operands))
        found.append(replace(spec, reads_finite=None not in operands) if spec.op in _EXTREMA else spec)
    return found


def _bound(spec: NodeSpec, operands: Sequence[float | None]) -> float | None:
    """The lower bound of a node's value; None where it may be infinite, or is not known to be finite."""
    if spec.kind is NodeKind.INPUT:
        return -math.inf if _is_integer(spec.var) else None
    if spec.kind is NodeKind.CONSTANT:
        return _least(spec)
    known = [bound for bound in operands if bound is not None]
    if len(known) < len(operands) or not known:
        return None
    if spec.op in _MOVES:
        return min(known)
    if spec.op in _AT_LEAST:
        return _AT_LEAST[spec.op]
    if spec.op == "relax.astype":
        return None if _narrows(spec) else -math.inf
    first, last = known[0], known[-1]
    if spec.op == "relax.add":
        return first + last
    if spec.op == "relax.multiply":
        return first * last if min(known) > 0.0 else 0.0 if len(known) == 1 or min(known) == 0.0 else -math.inf
    if spec.op == "relax.maximum":
        return max(known)
    if spec.op == "relax.sum":
        return 0.0 if first >= 0.0 else -math.inf
    if spec.op == "relax.sqrt":
        return math.sqrt(first) if first >= 0.0 else None
    if spec.op == "relax.rsqrt" or spec.op == "relax.divide":
        return None if last <= 0.0 else 0.0 if first >= 0.0 else -math.inf
    return None


def _is_integer(value: Any) -> bool:
    return str(value.ty.dtype).startswith(("int", "uint", "bool"))


def _narrows(spec: NodeSpec) -> bool:
    """Whether a cast may make infinities: of the largest numbers of float32, which masks have, float16 makes some."""
    given, result = str(spec.expr.args[0].ty.dtype), str(spec.var.ty.dtype)
    return not _is_integer(spec.var) and result != "float64" and (result != "float32" or given == "float64")


def _least(spec: NodeSpec) -> float | None:
    values = spec.expr.value.numpy()
    return float(values.min()) if values.size and np.isfinite(values).all() else None
