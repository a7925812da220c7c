"""The backend: sums with a constant, relu, and one after the other."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from tvm.relax.dpl import is_const, is_op, wildcard

from acme_relu.engine import ENGINE
from collage.backends.library.composite import Composite, Operands, dtype_of, static_shape
from collage.backends.library.host import HostLibraryBackend
from collage.rules import PartitionRule
from collage.rules.pattern_rule import PatternMatch
from collage.rules.trees import library_rule
from collage.runtime.host_engine import HostEngine


class AcmeBackend(HostLibraryBackend):
    """float32, without broadcasting."""

    name: ClassVar[str] = "acme-relu"
    host_engine: ClassVar[HostEngine] = ENGINE

    def version(self) -> str:
        return "1.0"

    def rule(self) -> PartitionRule:
        total = is_op("relax.add")(wildcard(), is_const())
        patterns = {"sum": total, "relu": is_op("relax.nn.relu")(wildcard()), "sum_relu": is_op("relax.nn.relu")(total)}
        return library_rule((f"acme.{label}", pattern, is_supported) for label, pattern in patterns.items())

    def blob_of(self, composite: Composite) -> bytes:
        operands, first = Operands(composite), composite.calls[0]
        header = {
            "x": operands.reference(first.args[0]),
            "elements": prod(static_shape(composite.result) or ()),
            "relu": composite.label.endswith("relu"),
        }
        if first.op.name == "relax.add":
            header["addend"] = operands.reference(first.args[1])
        return operands.blob(header)


def is_supported(match: PatternMatch) -> bool:
    """Whether all tensors are float32 of one shape."""
    calls = [match.graph.nodes[i].expr for i in match.inside]
    tensors = [tensor for call in calls for tensor in (call, *call.args)]
    return {(dtype_of(t), static_shape(t)) for t in tensors} == {("float32", static_shape(match.root.expr))}
