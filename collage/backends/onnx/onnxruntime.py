"""ONNX Runtime on the CPU: a graph-style backend fed through ONNX."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.base import Availability, Backend, Style
from collage.backends.onnx.export import export_onnx, unsupported_reason

if TYPE_CHECKING:
    from collage.graph.dataflow_graph import DataflowNode
    from collage.rules.base import PartitionRule


class ONNXRuntimeBackend(Backend):
    """Regions of operators run by ONNX Runtime's CPU execution provider."""

    name: ClassVar[str] = "onnxruntime"
    style: ClassVar[Style] = "graph"
    priority: ClassVar[int] = 20

    def availability(self) -> Availability:
        if find_spec("onnxruntime") is None:
            return Availability(False, "onnxruntime is not installed: `pip install collage-tvm[onnxruntime]`")
        return Availability(True)

    def version(self) -> str:
        return version("onnxruntime")

    def rule(self) -> PartitionRule:
        from collage.rules.trees import graph_rule

        return graph_rule(supports)

    def engine_blob(self, function: Any) -> bytes:
        """The partition as a serialised ONNX model."""
        blob: bytes = export_onnx(function, name=str(function.attrs["global_symbol"])).SerializeToString()
        return blob


def supports(node: DataflowNode) -> bool:
    """Whether ONNX Runtime runs a node with the results that TVM gives."""
    return unsupported_reason(node) is None
