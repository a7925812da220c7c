"""oneDNN on the CPU in eight bits: data by the range that was seen in calibration, weights by output channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import tvm

from collage.annotations.precision import INT8, uint8_steps
from collage.backends.library.composite import Composite
from collage.backends.onednn.narrow import NarrowOneDNNBackend
from collage.errors import CodegenError

if TYPE_CHECKING:
    from collage.graph.sub_graph import SubGraph
    from collage.rules.base import PartitionRule


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
        try:
            scale, zero = uint8_steps(composite.ranges[composite.arguments[data]])
        except ValueError as error:
            raise CodegenError(str(error)) from error
        return {"precision": INT8, "scale": scale, "zero": zero}


def has_constant_weights(sub_graph: SubGraph) -> bool:
    """Whether the data of each product are no constant, and its weights are one."""
    nodes = sub_graph.graph.nodes
    products = [nodes[i].expr for i in sub_graph.inside if nodes[i].op == "relax.matmul"]
    return all([isinstance(a, tvm.ir.GenericConst) for a in product.args] == [False, True] for product in products)
