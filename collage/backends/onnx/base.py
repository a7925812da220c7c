"""OnnxBackend: regions of operators that a library runs as ONNX models."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage.annotations.onnx_file import ONNX_FILE
from collage.backends.base import Availability, Backend, Style
from collage.backends.onnx.export import export_onnx, is_product_of_data, is_sum, takes_int8, unsupported_reason
from collage.backends.onnx.file import file_model
from collage.errors import CompiledModelError
from collage.runtime import engines

if TYPE_CHECKING:
    from onnx import ModelProto

    from collage.rules.base import PartitionRule


class OnnxBackend(Backend):
    """A graph-style backend; a subclass says which distribution it needs, and what its library does not take.

    Attributes
    ----------
    distribution
        What holds the library, as it is installed.
    int8_results
        Whether the library wants all that convolutions give in eight bits.
    int8_every
        Whether it computes every product in eight bits: those of two data, as attention has, and transposed
        convolutions, too.
    """

    style: ClassVar[Style] = "graph"
    distribution: ClassVar[str]
    int8_results: ClassVar[bool] = False
    int8_every: ClassVar[bool] = False

    def availability(self) -> Availability:
        try:
            missing = engines.find(self.engine_name).missing()
        except CompiledModelError as error:
            missing = str(error)
        return Availability(not missing, missing)

    def version(self) -> str:
        return version(self.distribution)

    def rule(self) -> PartitionRule:
        from collage.rules.trees import graph_rule

        return graph_rule(lambda node: self.refusal(node) is None)

    def refusal(self, node: Any) -> str | None:
        """Why the library does not run a node (or a Relax expression) with the results that TVM gives; None when it
        does.
        """
        return unsupported_reason(node)

    @property
    def int8_signed(self) -> bool:
        """Whether it is faster with data as int8 than as uint8 with a zero of their own, on this processor."""
        return False

    def takes_int8(self, node: Any) -> bool:
        return takes_int8(node.expr, self.int8_every)

    def int8_operands(self, graph: Any, node: Any) -> tuple[int, ...]:
        """Of a sum, and of a product of two data, both operands."""
        both = is_sum(node.expr) or is_product_of_data(node.expr)
        return tuple(node.inputs) if both else super().int8_operands(graph, node)

    def runs_file(self, graph: Any) -> bool:
        """By default where it takes every node: what a library computes wrongly, it computes wrongly in a file, too."""
        return all(self.refusal(node) is None for node in map(graph.nodes.__getitem__, graph.coverable))

    def export(self, function: Any) -> ModelProto:
        """The ONNX model of a `Codegen` function; of one that stands for a file, this file.

        Raises
        ------
        CodegenError
            ONNX does not have its operators, or the file cannot be read.
        """
        if ONNX_FILE in function.attrs:
            return file_model(Path(str(function.attrs[ONNX_FILE])), function)
        name = str(function.attrs["global_symbol"])
        return export_onnx(function, name=name, int8_results=self.int8_results, int8_signed=self.int8_signed)

    def engine_blob(self, function: Any) -> bytes:
        """The partition as a serialised ONNX model."""
        blob: bytes = self.export(function).SerializeToString()
        return blob
