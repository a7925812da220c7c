"""Rounding of quantised values: a number between two steps goes to either, depending on the engine.

The rest of the network goes on with the chosen step, so correct results of two engines may differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax

from collage.annotations.opaque import function_of, is_opaque, sub_graphs
from collage.annotations.precision import INT8
from collage.frontend.passes.rewriting import bindings

#: Of what is quantised to bytes, a few of its 256 steps.
QUANTISED = 0.03
#: Of a candidate with products in eight bits: wide enough for a whole network of them, and not for other numbers. How
#: large the error is, and what it does to the outputs, is measured apart.
IN_INT8 = 0.25

_RELAX = frozenset(("relax.quantize",))


def rounding_tolerance(function: Any) -> float:
    """The largest error, relative to the largest value, that quantisation in a Relax function may cost; 0 without."""
    return QUANTISED if any(_quantises(value) for _, value in bindings(function)) else 0.0


def label_tolerance(labels: Iterable[str]) -> float:
    """The same of what is labelled to be in eight bits (`collage.annotations.precision.INT8`)."""
    return IN_INT8 if INT8 in labels else 0.0


def _quantises(value: Any) -> bool:
    if is_opaque(value):
        return any(_rounds(node) for node in function_of(value).node)
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and value.op.name in _RELAX


def _rounds(node: Any) -> bool:
    if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") or node.op_type.startswith(
        ("QLinear", "QAttention")
    ):
        return True
    return "DynamicQuantize" in node.op_type or any(
        _rounds(inner) for graph in sub_graphs(node) for inner in graph.node
    )
