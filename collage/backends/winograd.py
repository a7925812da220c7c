"""Winograd's minimal filtering on the CPU: a library-style backend of 3 x 3 convolutions with their epilogues.

F(2, 3) and F(4, 3) take 2.25 and 4 times fewer multiplications than the sum that defines the convolution, in 32-bit
floats all along; results differ from it by about a millionth, and a hundred-thousandth, of their largest value. No CPU
library that Collage knows of has them any more. The engine is our own (`collage/runtime/winograd`), on TVM's threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from collage.backends.library.composite import Composite
from collage.backends.library.convolution import FORWARD, convolution_patterns, read_on_host
from collage.backends.library.epilogue import Step
from collage.backends.library.host import HostLibraryBackend
from collage.backends.library.problem import Binding, Problem, Unsupported, is_read_by, problem_of
from collage.runtime import blob
from collage.runtime.host_engine import HostEngine, compiler
from collage.runtime.winograd.engine import ENGINE

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule

_ACTIVATIONS = ("relax.nn.relu", "relax.clip", "relax.nn.leakyrelu")
#: Step of an epilogue -> what the header says of it: slope below zero, then bounds.
_STEPS: Mapping[str, Callable[[Step], dict[str, float]]] = {
    "add": lambda step: {},
    "relu": lambda step: {"low": 0.0},
    "clip": lambda step: {"low": step["low"], "high": step["high"]},
    "leaky_relu": lambda step: {"slope": step["slope"]},
}
#: Most taps along the depth: kMostTaps in collage/runtime/winograd/products.h.
_MOST_TAPS = 8


class WinogradBackend(HostLibraryBackend):
    """Convolutions of float32 with kernels of 3 x 3, in two dimensions and, with any depth of the kernel, in three."""

    name: ClassVar[str] = "winograd"
    priority: ClassVar[int] = 40
    host_engine: ClassVar[HostEngine] = ENGINE

    def version(self) -> str:
        """The compiler's: the engine is what it makes of the source, whose digest is in every record's key."""
        return compiler()

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule(convolution_patterns("winograd.conv", FORWARD, _ACTIVATIONS, is_supported))

    def blob_of(self, composite: Composite) -> bytes:
        """The convolution in numbers, and its weights; see `collage/runtime/winograd/engine.cc`."""
        return problem_blob(problem_of(composite, read), composite)


def read(bindings: Sequence[Binding]) -> Problem:
    """The problem that a partition's bindings are.

    Raises
    ------
    Unsupported
        The engine does not compute it.
    """
    problem = read_on_host(bindings)
    settings, weights = problem.settings, problem.operands["w"]
    *depth, height, width = weights.view.dims[2:]
    if (height, width) != (3, 3) or max(depth, default=1) > _MOST_TAPS:
        raise Unsupported(f"a kernel of {weights.view.dims[2:]}")
    if settings["groups"] != 1 or max(*settings["stride"], *settings["dilation"]) > 1:
        raise Unsupported("groups, strides or dilation")
    if any(step["mode"] not in _STEPS for step in settings["epilogue"]):
        raise Unsupported("an activation that is not linear in pieces")
    return problem


#: Whether a match can be compiled: its reading, without the blob.
is_supported = is_read_by(read)


def problem_blob(problem: Problem, composite: Composite) -> bytes:
    """The blob of a problem whose operands are arguments of a partition, or weights."""
    x, w = problem.operands["x"], problem.operands["w"]
    image, result = x.view.dims[2:], problem.result.dims[2:]
    lifted = 3 - len(image)
    read_from = {role: problem.operands[role].expr for role in ("x", "residual") if role in problem.operands}
    header = {
        "op": "conv",
        "batch": x.view.dims[0],
        "channels": x.view.dims[1],
        "filters": w.view.dims[0],
        "taps": 1 if lifted else w.view.dims[2],
        "image": [1] * lifted + list(image),
        "result": [1] * lifted + list(result),
        "before": [0] * lifted + list(problem.settings["pre_padding"]),
        "operands": {role: {"arg": composite.arguments[expr]} for role, expr in read_from.items()},
        "arguments": composite.count + 1,
        **{key: value for step in problem.settings["epilogue"] for key, value in _STEPS[step["mode"]](step).items()},
    }
    weights = {role: operand.value for role, operand in problem.operands.items() if operand.value is not None}
    return blob.pack(header, weights)
