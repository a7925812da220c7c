"""HostLibraryBackend: labelled patterns that an engine in C++ runs on the threads of TVM's kernels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from collage.backends.base import Availability, Backend, Style
from collage.backends.library.composite import Composite
from collage.errors import CodegenError, CompiledModelError
from collage.runtime.host_engine import HostEngine


class HostLibraryBackend(Backend):
    """A backend on the CPU with an engine of its own.

    Attributes
    ----------
    host_engine
        The engine, which is declared under the backend's name.
    """

    style: ClassVar[Style] = "library"
    host_engine: ClassVar[HostEngine]

    @property
    def pool(self) -> str:
        return "tvm"

    def availability(self) -> Availability:
        missing = self.host_engine.missing_to_compile()
        return Availability(not missing, missing)

    def engine_blob(self, function: Any) -> bytes:
        composite = Composite.of(function)
        try:
            self.host_engine.library()  # compiled here once, not by every process that measures
        except CompiledModelError as error:
            raise CodegenError(str(error)) from error
        return self.blob_of(composite)

    @abstractmethod
    def blob_of(self, composite: Composite) -> bytes:
        """What the engine runs for one labelled pattern.

        Raises
        ------
        CodegenError
            The engine does not compute it.
        """
