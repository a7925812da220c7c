"""oneDNN on the CPU in eight bits: data by the range that was seen in calibration, weights by output channel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import tvm

from collage.annotations.precision import INT8, UNKNOWN, Range
from collage.backends.library.composite import Composite
from collage.backends.onednn_bf16 import NarrowOneDNNBackend
from collage.errors import CodegenError

if TYPE_CHECKING:
    from collage.graph.sub_graph import SubGraph
    from collage.rules.base import PartitionRule

#: What data range over where nobody calibrated: latency does not depend on it.
_ANY: Range = (-4.0, 4.0)
#: Steps of data, and the least scale: the reciprocal is a number of float32.
_STEPS, _LEAST = 255, 1e-15


class OneDNNInt8Backend(NarrowOneDNNBackend):
    """Data in uint8 and constant weights in int8; sums are exact, and results float32."""

    name: ClassVar[str] = "onednn-int8"
    priority: ClassVar[int] = 34
    precision = INT8
    instructions = frozenset(("avx512_vnni", "amx_int8"))

    @property
    def tolerance(self) -> float:
        """Quantisation by ranges costs single values much; what it costs the network is for its budget to say."""
        return 0.25

    def rule(self) -> PartitionRule:
        from collage.rules.combinators import FilterPartitionRule

        return FilterPartitionRule(super().rule(), has_constant_weights)

    def held_in(self, composite: Composite, data: Any) -> dict[str, Any]:
        scale, zero = steps_of(composite.ranges[composite.arguments[data]])
        return {"precision": INT8, "scale": scale, "zero": zero}


def has_constant_weights(sub_graph: SubGraph) -> bool:
    """Whether the data of each product are no constant, and its weights are one."""
    nodes = sub_graph.graph.nodes
    products = [nodes[i].expr for i in sub_graph.inside if nodes[i].op == "relax.matmul"]
    return all([isinstance(a, tvm.ir.GenericConst) for a in product.args] == [False, True] for product in products)


def steps_of(ends: Range) -> tuple[float, int]:
    """Scale and zero point of data in uint8: zero, which pads images, is a step. What is beyond saturates.

    Raises
    ------
    CodegenError
        The data were not finite in calibration.
    """
    if not all(map(math.isfinite, ends)):
        raise CodegenError("its data were not finite in calibration: it cannot be in eight bits")
    low, high = _ANY if ends == UNKNOWN else (min(ends[0], 0.0), max(ends[1], 0.0))
    scale = max((high - low) / _STEPS, _LEAST)
    return scale, int(np.clip(np.rint(-low / scale), 0, _STEPS))
