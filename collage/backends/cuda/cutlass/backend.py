"""CUTLASS on a CUDA device: GEMMs and implicit-GEMM convolutions with bias, activation and residual in one kernel.

NVIDIA's library is templates: kernels are compiled here by nvcc, for this device's architecture, and travel inside the
partition's blob, so that a compiled model needs neither. Which of a few tiles is fastest is measured where a partition
is first loaded, and remembered: what ships has that one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.base import Availability, Style
from collage.backends.code import configuration_of
from collage.backends.cuda.base import NO_DEVICE, CudaBackend
from collage.backends.cuda.cutlass import build as cutlass_build
from collage.backends.cuda.cutlass.kernels import Kernel, kernels_for
from collage.backends.cuda.cutlass.problem import Computation, read_computation
from collage.backends.cuda.target import device_arch
from collage.backends.library.composite import Composite, Operands, static_shape
from collage.errors import BackendUnavailableError, CodegenError
from collage.runtime.cuda import choices
from collage.runtime.cuda.cutlass.libraries import KernelLibrary, describe_libraries
from collage.runtime.cuda.device import compute_capability
from collage.runtime.devices import cuda_name

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule
    from collage.rules.pattern_rule import PatternMatch

#: The kernels need asynchronous copies to shared memory.
_OLDEST = (8, 0)
_SHARES = {"float16": 2, "bfloat16": 2, "float32": 4}


class CutlassBackend(CudaBackend):
    """Products and what follows them, by kernels compiled from CUTLASS's templates.

    Parameters
    ----------
    precision
        Of float32 products: "float32", on the ordinary cores, or "tf32", on the tensor cores with operands rounded to
        ten bits. Half-precision products run on the tensor cores and accumulate in float32.
    arch
        That kernels are compiled for, such as "sm_90a"; None is the device's own.
    cache
        Folder that keeps compiled kernels and choices among them; None is the user's.
    """

    name: ClassVar[str] = "cutlass"
    style: ClassVar[Style] = "library"
    priority: ClassVar[int] = 14

    def __init__(self, precision: str = "float32", arch: str | None = None, cache: str | Path | None = None) -> None:
        super().__init__(precision)
        self.arch = arch
        self.cache = cache

    def availability(self) -> Availability:
        compute = compute_capability()
        if compute is None:
            return NO_DEVICE
        if tuple(int(part) for part in compute.split(".")) < _OLDEST:
            return Availability(False, f"the kernels need compute capability 8.0; the device has {compute}")
        reason = cutlass_build.missing()
        return Availability(reason is None, reason or "")

    def version(self) -> str:
        return f"{cutlass_build.cutlass_version()} (nvcc {cutlass_build.nvcc_version()})"

    def configuration(self) -> dict[str, Any]:
        """Precision and architecture."""
        return {"precision": self.checked_precision(), "arch": self.architecture()}

    def rule(self) -> PartitionRule:
        from collage.backends.cuda.cutlass.patterns import patterns
        from collage.rules.trees import library_rule

        return library_rule((label, pattern, self.takes) for label, pattern in patterns())

    def takes(self, match: PatternMatch) -> bool:
        """Whether there is a kernel for what a pattern matched."""
        nodes = match.graph.nodes
        bound = {nodes[i].var: nodes[i].expr for i in match.inside}
        try:
            return bool(self.kernels(read_computation(match.root.var, bound)))
        except CodegenError:
            return False

    def kernels(self, computation: Computation) -> tuple[Kernel, ...]:
        """The kernels worth trying; none when the alignment suits none."""
        return kernels_for(computation, self.architecture(), self.checked_precision())

    def prewarm(self, functions: Iterable[Any]) -> None:
        """Compile the kernels of all functions together: half a minute each, on all processors."""
        kernels: dict[Kernel, None] = {}
        for function in functions:
            with suppress(CodegenError):
                composite = Composite.of(function)
                kernels.update(dict.fromkeys(self._wanted(read_computation(composite.result, composite.bound))[0]))
        if kernels:
            with suppress(CodegenError):
                self.compile(list(kernels))

    def engine_blob(self, function: Any) -> bytes:
        """The computation, its weights, and the compiled kernels: the fastest alone where it is known."""
        composite = Composite.of(function)
        computation = read_computation(composite.result, composite.bound)
        kernels, key = self._wanted(computation)
        libraries = self.compile(kernels)
        entries, packed = describe_libraries(libraries)
        operands = Operands(composite)
        header = {
            "op": computation.kind,
            **_settings(computation),
            "operands": {name: operands.reference(value) for name, value in computation.operands.items()},
            "bytes": _sizes_in_bytes(computation),
            "kernels": entries,
            "choice_key": key,
        }
        return operands.blob(header) + packed

    def _wanted(self, computation: Computation) -> tuple[Sequence[Kernel], str]:
        """The kernels to compile, the fastest alone where it is known; and the key by which it is, or will be."""
        kernels = self.kernels(computation)
        key = self._choice_key(computation, kernels)
        known = (choices.read(key, self._folder()) or {}).get("kernel")
        return [kernel for kernel in kernels if known in (None, kernel.name)] or kernels, key

    def engine_options(self, threads: int) -> dict[str, Any]:
        """The engine remembers choices where this side looks for them."""
        return {"threads": threads, **({"cache": str(self.cache)} if self.cache is not None else {})}

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLibrary]:
        """The kernels' machine code, from the cache where it is there.

        Raises
        ------
        CodegenError
            None compiles.
        """
        return cutlass_build.Compiler(self.architecture(), self._folder()).libraries(kernels)

    def architecture(self) -> str:
        """What kernels are compiled for: with Hopper's own instructions ("sm_90a") on Hopper."""
        found = self.arch or device_arch()
        if found is None:
            raise BackendUnavailableError(
                "there is no CUDA device to compile for: name one, as CutlassBackend(arch='sm_90a')"
            )
        return "sm_90a" if found == "sm_90" else found

    def _folder(self) -> Path:
        return Path(self.cache) if self.cache is not None else choices.folder_of("cutlass")

    def _choice_key(self, computation: Computation, kernels: Sequence[Kernel]) -> str:
        """Of all that the fastest kernel depends on."""
        parts = [configuration_of(self), _settings(computation), [kernel.name for kernel in kernels], cuda_name()]
        parts.append(sorted(computation.operands))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _settings(computation: Computation) -> Mapping[str, Any]:
    """What the runner hands to a kernel, apart from addresses."""
    epilogue = computation.epilogue
    return {"problem": dict(computation.sizes), "pre": asdict(epilogue.pre), "post": asdict(epilogue.post)}


def _sizes_in_bytes(computation: Computation) -> dict[str, int]:
    """Of each operand, and of the result as "d": what the runner times kernels on."""
    share = _SHARES[computation.dtype]
    sizes = {name: share * prod(static_shape(value) or ()) for name, value in computation.operands.items()}
    return {**sizes, "d": share * prod(static_shape(computation.epilogue.product) or ())}
