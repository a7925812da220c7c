"""oneDNN on the CPU: a library-style backend of convolutions, transposed ones too, and products with their epilogues.

oneDNN is Intel's library of kernels (https://github.com/uxlfoundation/oneDNN), as its wheels on PyPI bring it. Networks
keep their layout, channels first: convolutions of one tap are matrix products of it as it lies; others are copied into
the layouts that oneDNN chooses, and back. It runs on TVM's threads, one thread per call of the library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tvm import relax

from collage.backends.library.composite import Composite
from collage.backends.library.convolution import FORWARD, TRANSPOSED, convolution_patterns, read_on_host
from collage.backends.library.epilogue import ACTIVATIONS
from collage.backends.library.host import HostLibraryBackend
from collage.backends.library.matmul.chain import MatmulChain, read_chain
from collage.backends.library.matmul.patterns import matmul_blob, matmul_patterns
from collage.backends.library.problem import Problem, is_read_by, problem_of, shape_of
from collage.runtime import blob
from collage.runtime.host_engine import HostEngine
from collage.runtime.onednn import engine

if TYPE_CHECKING:
    from collage.rules.base import PartitionRule


class OneDNNBackend(HostLibraryBackend):
    """float32: convolutions in one to three dimensions, grouped, dilated and transposed; matrix products."""

    name: ClassVar[str] = "onednn"
    priority: ClassVar[int] = 30
    host_engine: ClassVar[HostEngine] = engine.ENGINE

    def version(self) -> str:
        return engine.version()

    def rule(self) -> PartitionRule:
        from collage.rules.trees import library_rule

        return library_rule(
            [
                *convolution_patterns("onednn.conv", FORWARD, ACTIVATIONS, is_supported),
                *convolution_patterns("onednn.conv_transpose", TRANSPOSED, ACTIVATIONS, is_supported),
                *matmul_patterns("onednn", ("float32",), erf_dtypes=("float32",)),
            ]
        )

    def blob_of(self, composite: Composite) -> bytes:
        """The operation in numbers, and its weights; see `collage/runtime/onednn/engine.cc`."""
        if composite.label.startswith("onednn.matmul"):
            chain = read_chain(composite.bound)
            return product_blob(composite, chain, self.held_in(composite, chain.lhs))
        problem = problem_of(composite, read_on_host)
        return convolution_blob(problem, composite, self.held_in(composite, problem.operands["x"].expr))

    def held_in(self, composite: Composite, data: Any) -> dict[str, Any]:
        """What the header says of how operands are held, of which `data` is the one that is no weight; nothing of
        floats.
        """
        return {}


#: Whether a match can be compiled: its reading, without the blob.
is_supported = is_read_by(read_on_host)


def product_blob(composite: Composite, chain: MatmulChain, held_in: Mapping[str, Any]) -> bytes:
    """The blob of a matrix product."""
    read_from = {"lhs": chain.lhs, "rhs": chain.rhs, "bias": chain.bias, "residual": chain.residual}
    written = math.prod(shape_of(composite.result))
    return matmul_blob(composite, chain, operands=arguments(composite, read_from), written=written, **held_in)


def arguments(composite: Composite, read_from: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Which arguments of the partition's function are read, and how many elements they have."""
    return {
        role: {"arg": composite.arguments[expr], "floats": math.prod(shape_of(expr))}
        for role, expr in read_from.items()
        if isinstance(expr, relax.Var)
    }


def convolution_blob(problem: Problem, composite: Composite, held_in: Mapping[str, Any]) -> bytes:
    """The blob of a convolution whose operands are arguments of a partition, or weights."""
    settings, kernel = problem.settings, problem.operands["w"].view.dims[2:]
    read_from = {role: operand.expr for role, operand in problem.operands.items()}
    activation = [step for step in settings["epilogue"] if step["mode"] != "add"]
    padded = any(settings["pre_padding"]) or any(settings["post_padding"])
    pointwise = problem.op == "conv" and settings["groups"] == 1 and not padded and set(kernel) == {1}
    header = {
        "op": problem.op,
        "x": list(problem.operands["x"].view.dims),
        "y": list(problem.result.dims),
        "kernel": list(kernel),
        "stride": settings["stride"],
        "dilation": [step - 1 for step in settings["dilation"]],  # as oneDNN counts
        "before": settings["pre_padding"],
        "after": settings["post_padding"],
        "groups": settings["groups"],
        "operands": arguments(composite, read_from),
        "written": math.prod(problem.result.dims),
        "arguments": composite.count + 1,
        **({"activation": activation[0]} if activation else {}),
        **({"pointwise": True} if pointwise else {}),
        **held_in,
    }
    weights = {role: operand.value for role, operand in problem.operands.items() if operand.value is not None}
    return blob.pack(header, weights)
