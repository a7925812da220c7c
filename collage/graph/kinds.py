"""Operator kinds: how an operator's output elements depend on its input elements (RFC 0062, after TVM's fusion patterns).

Relax keeps no pattern kind on its operators; TVM derives one from the loop nest of a legalised PrimFunc (`op_pattern`). A call's
kind is therefore found by legalising that call alone and reading the kind of what it became.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class OpKind(IntEnum):
    """How freely an operator fuses with its neighbours, freest first. A sub-graph's kind is the maximum of its nodes' kinds."""

    ELEMENTWISE = 0
    """Each output element reads the input elements at its own position."""
    BROADCAST = 1
    """Each output element reads one element of each input, with axes repeated."""
    INJECTIVE = 2
    """Each output element reads one element of one input, at any position (reshape, transpose, concatenate)."""
    REDUCTION = 3
    """Each output element combines many input elements along an axis (sum, mean)."""
    ANCHOR = 4
    """A heavy operator whose *output* can be fused with elementwise followers (convolution, matmul): "out-elementwise-fusable"."""
    TUPLE = 5
    """A tuple of values; no computation."""
    OPAQUE = 6
    """Cannot be fused: extern calls, data-dependent outputs, sorting."""


class NodeKind(Enum):
    """What a node of the dataflow graph stands for."""

    INPUT = "input"
    CONSTANT = "constant"
    CALL = "call"
    TUPLE = "tuple"
    TUPLE_GET = "tuple_get"
