"""One kernel of a workload, in detail: an operator that is no view, and what follows it elementwise if it is an anchor.

Where totals say how much there is to do, details say in what shape: libraries choose their algorithm by window, stride
and channels, fill vectors of 8 or 16, and cut matrices into tiles, so that equal work takes unequal time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from estimators.features.columns import DETAIL_FEATURES
from estimators.features.operator import ANCHORS, EXPENSIVE, OperatorFacts

#: The names of operators that a detail of their own tells apart; others are told apart by their class.
_NAMED = {
    "nn.softmax": "norm",
    "nn.log_softmax": "norm",
    "nn.layer_norm": "norm",
    "nn.group_norm": "norm",
    "nn.rms_norm": "norm",
    "nn.max_pool2d": "maximum",
    "nn.max_pool3d": "maximum",
    "concat": "concat",
    "permute_dims": "permute",
    "nn.pad": "pad",
    "strided_slice": "slice",
    "split": "split",
    "mean": "mean",
}
_FLAGS = ("norm", "maximum", "concat", "permute", "pad", "slice", "split", "mean")
#: Elements of a vector register that a matrix's columns, and its inner channels, fill or waste.
_COLUMNS, _CHANNELS, _INNER = 16, 16, 16


def kernel_details(
    facts: OperatorFacts,
    epilogue: Sequence[OperatorFacts],
    epilogue_bytes: float,
    entering: int,
    leaving: int,
    consumers: int,
) -> tuple[float, ...]:
    """The numbers of `DETAIL_FEATURES`.

    Parameters
    ----------
    facts, epilogue: the operator, and those that are computed on its result before it is written.
    epilogue_bytes: read by the epilogue besides that result.
    entering, leaving: tensors that cross the workload's border here.
    consumers: operators that read the result.
    """
    inner_channels = facts.products if facts.cls == "matmul" else facts.channels_in
    named = _NAMED.get(facts.name)
    details = (
        _log(facts.flops),
        _log(facts.input_bytes),
        _log(facts.weight_bytes),
        _log(facts.output_bytes),
        _log(facts.bytes + epilogue_bytes),
        _log(facts.flops / max(1.0, facts.bytes)),
        _log(facts.rows),
        _log(facts.columns),
        _log(facts.products),
        _log(facts.groups),
        facts.kernel,
        facts.stride,
        float(facts.rank),
        _log(facts.channels_in),
        _padded(facts.columns, _COLUMNS) if facts.cls in ANCHORS else 1.0,
        _padded(inner_channels, _CHANNELS),
        _log(facts.inner),
        _padded(facts.inner, _INNER),
        _log(facts.run),
        _padded(facts.run, _INNER),
        float(len(epilogue)),
        _log(epilogue_bytes),
        float(sum(follower.name in EXPENSIVE for follower in epilogue)),
        float(entering),
        float(leaving),
        float(consumers),
        float(facts.weight_bytes > 0),
        float(facts.cls == "elementwise" and facts.name in EXPENSIVE),
        *(float(named == flag) for flag in _FLAGS),
    )
    assert len(details) == len(DETAIL_FEATURES)
    return details


def _padded(extent: float, lanes: int) -> float:
    """By how much an extent grows when it is filled up to whole vectors."""
    return math.ceil(extent / lanes) * lanes / extent if extent >= 1.0 else 1.0


def _log(value: float) -> float:
    return math.log2(1.0 + value)
