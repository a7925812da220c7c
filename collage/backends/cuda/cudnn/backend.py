"""cuDNN through its graph API: a library-style backend of convolutions with epilogues, pooling, rows and attention.

A partition is one labelled pattern (`patterns`), read into a `Problem`; its blob is the problem's header and the
weights, in the layout in which cuDNN wants them. The engine (`collage/runtime/cuda/cudnn/`) makes a graph of it and
times the plans that cuDNN's heuristics propose, once per device (`collage.runtime.cuda.choices`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from collage.backends.cuda.base import CudaLibraryBackend
from collage.backends.cuda.cudnn.patterns import patterns, read
from collage.backends.library.composite import Composite
from collage.backends.library.problem import Problem, problem_of
from collage.runtime.blob import pack
from collage.runtime.cuda.choices import ChoosingEngine
from collage.runtime.cuda.cudnn.engine import ENGINE

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule


class CudnnBackend(CudaLibraryBackend):
    """Patterns that cuDNN runs; `precision` is that of float32 convolutions, which tf32 takes to the tensor cores."""

    name: ClassVar[str] = "cudnn"
    priority: ClassVar[int] = 12
    library_engine: ClassVar[ChoosingEngine] = ENGINE
    library: ClassVar[str] = "libcudnn.so.9"
    version_function: ClassVar[str] = "cudnnGetVersion"

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule(patterns())

    def configuration(self) -> dict[str, Any]:
        """The precision."""
        return {"precision": self.checked_precision()}

    def engine_blob(self, function: Any) -> bytes:
        """The header of the partition's problem, and its weights; see `collage/runtime/cuda/cudnn/problem.h`."""
        composite = Composite.of(function)
        problem = problem_of(composite, read)
        return self.with_known_choice(problem_blob(problem, composite, self.precision))


def problem_blob(problem: Problem, composite: Composite, precision: str) -> bytes:
    """The blob of a problem whose operands are arguments of a partition, or weights."""
    operands, tensors = {}, {}
    for role, operand in problem.operands.items():
        view: dict[str, Any] = {"dims": operand.view.dims, "strides": operand.view.strides, "dtype": operand.dtype}
        if operand.view.offset:
            view["offset"] = operand.view.offset
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
