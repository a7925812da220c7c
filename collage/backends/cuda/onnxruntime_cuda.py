"""ONNX Runtime on a CUDA device: a graph-style backend fed through ONNX.

The package `onnxruntime-gpu` installs the module `onnxruntime`, as the package for CPUs does: where both are installed
the later one has overwritten the earlier. With `onnxruntime-gpu` alone the CPU backend works as well.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from collage.backends.base import Availability
from collage.backends.cuda.base import NO_DEVICE
from collage.backends.cuda.onnx import CudaOnnxBackend
from collage.runtime.devices import cuda_exists

_PACKAGE = "onnxruntime-gpu"
_PROVIDER = "capi/libonnxruntime_providers_cuda.so"


class OnnxRuntimeCudaBackend(CudaOnnxBackend):
    """Regions of operators run by ONNX Runtime's CUDA execution provider."""

    name: ClassVar[str] = "onnxruntime-cuda"
    priority: ClassVar[int] = 20
    distribution: ClassVar[str] = _PACKAGE

    def availability(self) -> Availability:
        try:
            version(_PACKAGE)
        except PackageNotFoundError:
            return Availability(False, f"{_PACKAGE} is not installed: `pip install {_PACKAGE}` in place of onnxruntime")
        if not provider_is_there():
            return Availability(
                False,
                f"the files of {_PACKAGE} were overwritten by those of onnxruntime, which has the same module: "
                f"`pip uninstall onnxruntime {_PACKAGE}`, then `pip install {_PACKAGE}`",
            )
        if not cuda_exists():
            return NO_DEVICE
        return Availability(True)

    def configuration(self) -> dict[str, Any]:
        """The precision."""
        return {"precision": self.checked_precision()}

    def engine_options(self, threads: int) -> dict[str, Any]:
        return {"threads": threads, "tf32": self.checked_precision() == "tf32"}


def provider_is_there() -> bool:
    """Whether the installed module has the CUDA execution provider; it is looked for, not loaded."""
    spec = find_spec("onnxruntime")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return any((Path(folder) / _PROVIDER).is_file() for folder in folders)
