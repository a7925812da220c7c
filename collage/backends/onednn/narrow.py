"""What the backends of oneDNN with operands of fewer bits have in common."""

from __future__ import annotations

from typing import ClassVar

from collage.backends.base import Availability
from collage.backends.library.composite import Composite
from collage.backends.onednn.backend import OneDNNBackend
from collage.errors import CodegenError, CompiledModelError
from collage.runtime.device_info import describe_device


class NarrowOneDNNBackend(OneDNNBackend):
    """Operands are held in fewer bits; what goes in, sums, and what comes out are float32.

    Attributes
    ----------
    instructions
        What processors call the instructions without which this gains nothing; one of them is needed.
    """

    engine: ClassVar[str] = "onednn"
    instructions: ClassVar[frozenset[str]]

    def availability(self) -> Availability:
        state = super().availability()
        if state.available and self.instructions.isdisjoint(describe_device("cpu").features):
            return Availability(False, f"the processor has no instructions for {self.precision}")
        return state

    def blob_of(self, composite: Composite) -> bytes:
        """The operation; one that oneDNN has no fast kernel for is refused here, and not by who measures it."""
        blob = super().blob_of(composite)
        try:
            self.host_engine.create(blob, self.engine_options(1))
        except CompiledModelError as error:
            raise CodegenError(f"{composite.label}: {error}") from error
        return blob
