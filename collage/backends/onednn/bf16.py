"""oneDNN on the CPU in bfloat16: convolutions and products of operands that are rounded to three decimal digits."""

from __future__ import annotations

from typing import Any, ClassVar

from collage.annotations.precision import BF16
from collage.backends.library.composite import Composite
from collage.backends.onednn.narrow import NarrowOneDNNBackend


class OneDNNBf16Backend(NarrowOneDNNBackend):
    """Operands in bfloat16; sums in float32."""

    name: ClassVar[str] = "onednn-bf16"
    priority: ClassVar[int] = 32
    precision = BF16
    instructions = frozenset(("avx512_bf16", "amx_bf16"))

    @property
    def tolerance(self) -> float:
        """As of tensors of bfloat16 (`collage.measure.check`)."""
        return 0.08

    def held_in(self, composite: Composite, data: Any) -> dict[str, Any]:
        return {"precision": BF16}
