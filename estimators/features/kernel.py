"""One kernel of a workload, in detail: an operator that is no view, with the elementwise operators after an anchor.

Totals say how much there is to do, details say in what shape. Libraries choose their algorithm by window, stride and
channels, fill vectors of 8 or 16, and cut matrices into tiles, so that equal work takes unequal time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from estimators.features.columns import Feature, logged
from estimators.features.operator import ANCHORS, EXPENSIVE, OperatorFacts

#: Operators that a detail of their own distinguishes; others differ by their class only.
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
#: Elements of a vector register, which extents fill or waste.
_LANES = 16


class KernelFacts(NamedTuple):
    """A kernel and its surroundings.

    Attributes
    ----------
    head, epilogue
        The operator, and those that are computed on its result before it is written.
    epilogue_bytes
        Read by the epilogue besides that result.
    entering, leaving
        Tensors that cross the workload's border here.
    consumers
        Operators that read the result.
    """

    head: OperatorFacts
    epilogue: Sequence[OperatorFacts]
    epilogue_bytes: float
    entering: int
    leaving: int
    consumers: int


def _flag(name: str) -> Feature[KernelFacts]:
    return Feature(name, "0 or 1", f"whether it is a {name}", lambda k: float(_NAMED.get(k.head.name) == name))


DETAIL_FEATURES: tuple[Feature[KernelFacts], ...] = (
    logged("flops", "flop", "of the kernel", lambda k: k.head.flops),
    logged("input", "byte", "activations read", lambda k: k.head.input_bytes),
    logged("weight", "byte", "constants read", lambda k: k.head.weight_bytes),
    logged("output", "byte", "results written", lambda k: k.head.output_bytes),
    logged(
        "traffic",
        "byte",
        "all of these, and what the epilogue reads: it fits into a cache or does not",
        lambda k: k.head.bytes + k.epilogue_bytes,
    ),
    logged("intensity", "flop/byte", "flops / bytes", lambda k: k.head.flops / max(1.0, k.head.bytes)),
    logged("rows", "count", "M of the implicit matrix product; elements of another operator", lambda k: k.head.rows),
    logged("columns", "count", "N", lambda k: k.head.columns),
    logged("products", "count", "K", lambda k: k.head.products),
    logged("groups", "count", "independent matrix products", lambda k: k.head.groups),
    Feature("window", "count", "elements of the window of a convolution or pool", lambda k: k.head.kernel),
    Feature("stride", "count", "product of the strides", lambda k: k.head.stride),
    Feature("rank", "count", "of the result", lambda k: float(k.head.rank)),
    logged("channels_in", "count", "of one group of a convolution", lambda k: k.head.channels_in),
    Feature(
        "columns_padded",
        "ratio",
        "N, filled up to vectors of 16 / N",
        lambda k: _padded(k.head.columns) if k.head.cls in ANCHORS else 1.0,
    ),
    Feature(
        "channels_padded",
        "ratio",
        "input channels, or K of a matrix product, filled up to vectors of 16 / themselves",
        lambda k: _padded(k.head.products if k.head.cls == "matmul" else k.head.channels_in),
    ),
    logged("inner", "count", "last extent of the result", lambda k: k.head.inner),
    Feature(
        "inner_padded", "ratio", "last extent, filled up to vectors of 16 / itself", lambda k: _padded(k.head.inner)
    ),
    logged(
        "run",
        "count",
        "elements in a row that an elementwise operator reads alike; all if none is broadcast",
        lambda k: k.head.run,
    ),
    Feature("run_padded", "ratio", "these, filled up to vectors of 16 / themselves", lambda k: _padded(k.head.run)),
    Feature("epilogue", "count", "elementwise operators that follow the anchor", lambda k: float(len(k.epilogue))),
    logged("epilogue_input", "byte", "read by them besides its result", lambda k: k.epilogue_bytes),
    Feature(
        "epilogue_expensive",
        "count",
        "of them, those that are polynomials or divisions",
        lambda k: float(sum(follower.name in EXPENSIVE for follower in k.epilogue)),
    ),
    Feature("entering", "count", "tensors that enter the workload here", lambda k: float(k.entering)),
    Feature("leaving", "count", "tensors that leave the workload here", lambda k: float(k.leaving)),
    Feature("consumers", "count", "operators that read the result", lambda k: float(k.consumers)),
    Feature("constant", "0 or 1", "whether constants are read", lambda k: float(k.head.weight_bytes > 0)),
    Feature(
        "expensive",
        "0 or 1",
        "elementwise, and a polynomial or a division",
        lambda k: float(k.head.cls == "elementwise" and k.head.name in EXPENSIVE),
    ),
    *map(_flag, ("norm", "maximum", "concat", "permute", "pad", "slice", "split", "mean")),
)
DETAIL_NAMES = tuple(feature.name for feature in DETAIL_FEATURES)


def _padded(extent: float) -> float:
    """By how much an extent grows when it is filled up to whole vectors."""
    return math.ceil(extent / _LANES) * _LANES / extent if extent >= 1.0 else 1.0
