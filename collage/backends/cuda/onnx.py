"""CudaOnnxBackend: regions of operators that a library runs as ONNX models on a CUDA device, in float32 or float16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collage.backends.cuda.base import CudaBackend
from collage.backends.onnx import half_precision
from collage.backends.onnx.base import OnnxBackend

if TYPE_CHECKING:
    from onnx import ModelProto


class CudaOnnxBackend(CudaBackend, OnnxBackend):
    """The skeleton of `OnnxBackend` on the device."""

    def refusal(self, node: Any) -> str | None:
        return half_precision.refusal(node)

    def takes_int8(self, node: Any) -> bool:
        """None: what has its channels last is rearranged, and TensorRT wants data without a zero."""
        return False

    def export(self, function: Any) -> ModelProto:
        return half_precision.export_any_float(function, str(function.attrs["global_symbol"]))
