"""The patterns that the cuDNN backend looks for, and how a match is read.

Patterns say what belongs together; whether cuDNN takes it (layouts, dtypes, shapes of biases) is the readers' matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from tvm.relax.dpl import is_const, is_op, wildcard

from collage.backends.cuda.cudnn.attention import PERMUTE, PRODUCT, SELECT, SLICE, SOFTMAX, read_attention
from collage.backends.cuda.cudnn.rows import LAYER_NORM, RMS_NORM, read_rows
from collage.backends.cuda.cudnn.window import ADAPTIVE, AVERAGE, MAXIMUM, MEAN, read_pool
from collage.backends.library.convolution import FORWARD, TRANSPOSED, Pattern, convolution_patterns, read_convolution
from collage.backends.library.epilogue import ACTIVATIONS
from collage.backends.library.problem import Binding, Problem, is_read_by


def patterns() -> list[Pattern]:
    """(label, pattern, check) for `library_rule`."""
    return [
        *convolution_patterns("cudnn.conv", FORWARD, ACTIVATIONS, is_supported),
        *convolution_patterns("cudnn.conv_transpose", TRANSPOSED, ACTIVATIONS, is_supported),
        *_single(),
        ("cudnn.attention", _attention(), is_supported),
    ]


def read(bindings: Sequence[Binding]) -> Problem:
    """The problem that a partition's bindings are.

    Raises
    ------
    Unsupported
        CuDNN does not compute it.
    """
    first = bindings[0].op
    if first in FORWARD or first in TRANSPOSED:
        return read_convolution(bindings)
    if first in POOLING:
        return read_pool(bindings)
    if first in ROWS and len(bindings) == 1:
        return read_rows(bindings)
    return read_attention(bindings)


#: Whether a match can be compiled: its reading, without the blob.
is_supported = is_read_by(read)


POOLING = (*MAXIMUM, *AVERAGE, *ADAPTIVE, MEAN)
ROWS = (SOFTMAX, LAYER_NORM, RMS_NORM)


def _single() -> list[Pattern]:
    labels = {"cudnn.pool": POOLING, "cudnn.softmax": (SOFTMAX,), "cudnn.norm": (LAYER_NORM, RMS_NORM)}
    return [
        (label, _any_of([is_op(name)(wildcard(), varg_default_wildcard=True) for name in operators]), is_supported)
        for label, operators in labels.items()
    ]


def _attention() -> Any:
    scores = is_op(PRODUCT)(_maybe_transposed(), is_op(PERMUTE)(_maybe_sliced()))
    scaled = scores | is_op("relax.multiply")(scores, is_const()) | is_op("relax.divide")(scores, is_const())
    masked = scaled | is_op("relax.add")(scaled, wildcard()) | is_op(SELECT)(is_const(), scaled, is_const())
    mixed = is_op(PRODUCT)(is_op(SOFTMAX)(masked), _maybe_transposed())
    return mixed | is_op(PERMUTE)(mixed)


def _maybe_transposed() -> Any:
    return is_op(PERMUTE)(_maybe_sliced()) | _maybe_sliced()


def _maybe_sliced() -> Any:
    return is_op(SLICE)(wildcard(), varg_default_wildcard=True) | wildcard()


def _any_of(alternatives: Sequence[Any]) -> Any:
    return reduce(or_, alternatives)
