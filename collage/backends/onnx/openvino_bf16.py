"""OpenVINO on the CPU in bfloat16: matrix products and convolutions at twice the rate, with three decimal digits."""

from __future__ import annotations

from typing import Any, ClassVar

from collage.annotations.precision import BF16
from collage.backends.base import Availability
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.runtime.device_info import describe_device

#: What processors call their instructions for bfloat16 (x86-64, Arm).
_INSTRUCTIONS = frozenset(("avx512_bf16", "amx_bf16", "bf16"))


class OpenVINOBf16Backend(OpenVINOBackend):
    """Regions of operators run by OpenVINO's CPU plug-in in bfloat16; what goes in and comes out stays float32."""

    name: ClassVar[str] = "openvino-bf16"
    priority: ClassVar[int] = 12
    engine: ClassVar[str] = "openvino"
    precision = BF16

    @property
    def pool(self) -> str:
        return "openvino"

    @property
    def tolerance(self) -> float:
        """As of tensors of bfloat16 (`collage.measure.check`)."""
        return 0.08

    def availability(self) -> Availability:
        state = super().availability()
        if state.available and _INSTRUCTIONS.isdisjoint(describe_device("cpu").features):
            return Availability(False, "the processor has no instructions for bfloat16")
        return state

    def engine_options(self, threads: int) -> dict[str, Any]:
        return {**super().engine_options(threads), "precision": "bf16"}
