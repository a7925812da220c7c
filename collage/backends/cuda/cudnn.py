"""cuDNN through its graph API: a library-style backend of convolutions with epilogues, pooling, rows and attention.

A partition is one labelled pattern (`cudnn_patterns`), read into a `Problem`; its blob is the problem's header and the
weights, in the layout in which cuDNN wants them. The engine (`collage/runtime/cuda/cudnn.cc`) makes a graph of it and
times the plans that cuDNN's heuristics propose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.base import Availability, Backend, Style
from collage.backends.cuda.cudnn_patterns import patterns, read
from collage.backends.cuda.cudnn_problem import Binding, Problem, Unsupported
from collage.backends.cuda.partition import Composite
from collage.backends.source_digest import source_digest
from collage.errors import CodegenError, CompiledModelError, PluginError
from collage.runtime.cuda import native
from collage.runtime.cuda.blob import pack
from collage.runtime.devices import cuda_exists

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule

#: What rounded operands may cost: ten bits of mantissa, and sums over thousands of products.
TF32_TOLERANCE = 1e-2
#: Of float32 convolutions; float16 and bfloat16 are summed in float32 in any case.
PRECISIONS = ("float32", "tf32")
_LIBRARY = "libcudnn.so.9"


class CudnnBackend(Backend):
    """Patterns that cuDNN runs.

    Parameters
    ----------
    precision: of float32 convolutions: "float32", or "tf32" with operands rounded to ten bits, on tensor cores.
    """

    name: ClassVar[str] = "cudnn"
    style: ClassVar[Style] = "library"
    device: ClassVar[str] = "cuda"
    priority: ClassVar[int] = 12

    def __init__(self, precision: str = "float32") -> None:
        self.precision = precision

    @property
    def tolerance(self) -> float:
        return TF32_TOLERANCE if self.precision == "tf32" else 0.0

    def availability(self) -> Availability:
        if not cuda_exists():
            return Availability(False, "no CUDA device was found")
        if not native.is_installed(_LIBRARY):
            return Availability(False, f"{_LIBRARY} is not installed: `pip install collage-tvm[cuda]`")
        try:
            native.require_build("cudnn")
        except CompiledModelError as error:
            return Availability(False, str(error))
        return Availability(True)

    def version(self) -> str:
        """Such as "9.19.0", as the library itself says it."""
        number = native.library_version(_LIBRARY, "cudnnGetVersion")
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule(patterns())

    def configuration(self) -> dict[str, Any]:
        """Precision, and patterns and engine as a digest of their code."""
        if self.precision not in PRECISIONS:
            raise PluginError(f"cudnn: precision is one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        code = source_digest(
            *("backends/cuda/cudnn*.py", "backends/cuda/partition.py", "runtime/cuda/*.py", "runtime/cuda/partition.h"),
            *("runtime/cuda/cudnn*", "runtime/engines/cudnn.py"),
        )
        return {"code": code, "precision": self.precision}

    def engine_blob(self, function: Any) -> bytes:
        """The header of the partition's problem, and its weights; see `collage/runtime/cuda/cudnn_problem.h`."""
        composite = Composite.of(function)
        try:
            problem = read([Binding(var, call) for var, call in composite.bound.items()])
        except Unsupported as refusal:
            raise CodegenError(f"{composite.label}: {refusal}") from None
        return problem_blob(problem, composite, self.precision)


def problem_blob(problem: Problem, composite: Composite, precision: str) -> bytes:
    """The blob of a problem whose operands are arguments of a partition, or weights."""
    operands, tensors = {}, {}
    for role, operand in problem.operands.items():
        view = {"dims": operand.view.dims, "strides": operand.view.strides, "dtype": operand.dtype}
        if operand.value is None:
            operands[role] = {"arg": composite.arguments[operand.expr], **view}
        else:
            operands[role] = {"tensor": role, **view}
            tensors[role] = operand.value
    result = {"dims": problem.result.dims, "strides": problem.result.strides, "dtype": problem.dtype}
    header = {
        **problem.settings,
        **{"op": problem.op, "precision": precision, "operands": operands},
        **{"result": {"arg": composite.count, **result}, "arguments": composite.count + 1},
    }
    return pack(header, tensors)
