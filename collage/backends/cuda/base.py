"""What backends on a CUDA device share: the precision of float32 products, and being a shared library of NVIDIA's."""

from __future__ import annotations

from typing import ClassVar

from collage.backends.base import Availability, Backend, Style
from collage.errors import PluginError
from collage.runtime.cuda import native
from collage.runtime.cuda.choices import ChoosingEngine
from collage.runtime.devices import cuda_exists

#: Of float32 products; float16 and bfloat16 are accumulated in float32 in any case.
PRECISIONS = ("float32", "tf32")
#: What rounded operands may cost: ten bits of mantissa, and sums over thousands of products.
TF32_TOLERANCE = 1e-2
NO_DEVICE = Availability(False, "no CUDA device was found")


class CudaBackend(Backend):
    """A backend of which the user says how float32 products are computed.

    Parameters
    ----------
    precision
        Of float32 products: "float32", or "tf32" with operands rounded to ten bits.
    """

    device: ClassVar[str] = "cuda"

    def __init__(self, precision: str = "float32") -> None:
        self.precision = precision

    @property
    def tolerance(self) -> float:
        return TF32_TOLERANCE if self.precision == "tf32" else 0.0

    def checked_precision(self) -> str:
        """The precision, if it is one.

        Raises
        ------
        PluginError
            It is not.
        """
        if self.precision not in PRECISIONS:
            raise PluginError(
                f"{self.name}: the precision of float32 products is {' or '.join(PRECISIONS)}, not {self.precision!r}"
            )
        return self.precision


class CudaLibraryBackend(CudaBackend):
    """Labelled patterns, run by a shared library through an engine of ours.

    Attributes
    ----------
    library_engine
        The engine, which is declared under the backend's name.
    library
        File name of the shared library.
    version_function
        Its function that gives major * 10000 + minor * 100 + patch.
    """

    style: ClassVar[Style] = "library"
    library_engine: ClassVar[ChoosingEngine]
    library: ClassVar[str]
    version_function: ClassVar[str]

    def availability(self) -> Availability:
        if not cuda_exists():
            return NO_DEVICE
        if not native.is_installed(self.library):
            return Availability(False, f"{self.library} is not installed: `pip install collage-tvm[cuda]`")
        missing = self.library_engine.missing_to_compile()
        return Availability(not missing, missing)

    def with_known_choice(self, blob: bytes) -> bytes:
        """The blob with the algorithms that were fastest, where its engine has run it on this device before."""
        return self.library_engine.known(blob) if cuda_exists() else blob

    def version(self) -> str:
        """Such as "13.1.0", as the library itself says it."""
        number = native.library_version(self.library, self.version_function)
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
