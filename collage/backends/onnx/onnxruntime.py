"""ONNX Runtime on the CPU: a graph-style backend fed through ONNX."""

from __future__ import annotations

from typing import Any, ClassVar

from collage.backends.onnx.base import OnnxBackend


class ONNXRuntimeBackend(OnnxBackend):
    """Regions of operators run by ONNX Runtime's CPU execution provider."""

    name: ClassVar[str] = "onnxruntime"
    priority: ClassVar[int] = 20
    distribution: ClassVar[str] = "onnxruntime"

    def alone_options(self) -> dict[str, Any]:
        """Its threads spin while they wait, as ONNX Runtime has it by default."""
        return {"spin": True}
