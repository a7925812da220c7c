"""ONNX Runtime on the CPU: a graph-style backend fed through ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from collage.annotations.opaque import names_read, sub_graphs
from collage.annotations.precision import INT8_POSITIONS
from collage.backends.onnx.base import OnnxBackend
from collage.backends.onnx.int8_form import recognisable

if TYPE_CHECKING:
    from onnx import ModelProto


class ONNXRuntimeBackend(OnnxBackend):
    """Regions of operators run by ONNX Runtime's CPU execution provider."""

    name: ClassVar[str] = "onnxruntime"
    priority: ClassVar[int] = 20
    distribution: ClassVar[str] = "onnxruntime"
    int8_results: ClassVar[bool] = True

    def export(self, function: Any) -> ModelProto:
        """As `OnnxBackend.export`. What the branches of an `If` read has open dimensions: with shapes that are known,
        ONNX Runtime's optimisations infer those of the branch that is never taken, and refuse it.
        """
        model = super().export(function)
        if INT8_POSITIONS in function.attrs:
            recognisable(model)
        branches = [graph for node in model.graph.node if node.op_type == "If" for graph in sub_graphs(node)]
        read = {name for graph in branches for node in graph.node for name in names_read(node)}
        for value in model.graph.input:
            if value.name in read:
                for i, dimension in enumerate(value.type.tensor_type.shape.dim):
                    dimension.dim_param = f"{value.name}_{i}"
        return model

    def runs_file(self, graph: Any) -> bool:
        """Every one: ONNX Runtime defines what its operators give."""
        return True

    def alone_options(self) -> dict[str, Any]:
        """Its threads spin while they wait, as ONNX Runtime has it by default."""
        return {"spin": True}
