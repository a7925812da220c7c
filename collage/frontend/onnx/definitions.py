"""What defines an operator of a model: a function of the model, a converter, or the standard's own definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, NodeProto
from tvm.relax.frontend.onnx import onnx_frontend

from collage.annotations.opaque import sub_graphs
from collage.errors import UnsupportedOperatorError
from collage.frontend.onnx.converters import CONVERTERS
from collage.frontend.onnx.node import EVALUATED
from collage.frontend.onnx.opaque import is_of_tensors, may_be_opaque
from collage.frontend.values import dtype_of, static_shape

#: Names of the domain of ONNX's own operators.
STANDARD = frozenset({"", "ai.onnx"})

#: Operators of the standard whose definition is used instead of TVM's converter, which is for another domain's.
_BY_DEFINITION = frozenset({"Attention"})

#: Domains whose operators TVM's converters implement; elsewhere the same name may mean something else.
_DOMAINS = STANDARD | {"com.microsoft"}


@cache
def tvm_converters() -> Mapping[str, Any]:
    """TVM's table: operator -> converters of all opsets."""
    return dict(onnx_frontend._get_convert_map())


class Definitions:
    """What defines the operators of one model.

    Parameters
    ----------
    functions
        Of the model.
    """

    def __init__(self, functions: Iterable[FunctionProto]) -> None:
        self._functions = {(function.domain, function.name): function for function in functions}

    def own(self, node: NodeProto) -> FunctionProto | None:
        """The model's own definition of an operator."""
        return self._functions.get((node.domain, node.op_type))

    def knows(self, node: NodeProto, opset: int) -> bool:
        """Whether anything defines the operator."""
        return self.own(node) is not None or self.has_converter(node) or self.function(node, opset) is not None

    def require(self, nodes: Iterable[NodeProto], opset: int) -> None:
        """Before anything is built: refuse all operators that have no converter, with the nodes that use them.

        Raises
        ------
        UnsupportedOperatorError
            There is one.
        """
        missing: dict[str, list[str]] = {}
        self._collect(nodes, opset, missing)
        if missing:
            lines = [
                f"{operator} (node {', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
                for operator, names in missing.items()
            ]
            plural = "s" if len(missing) > 1 else ""
            raise UnsupportedOperatorError(f"unsupported ONNX operator{plural}: {'; '.join(lines)}")

    def _collect(self, nodes: Iterable[NodeProto], opset: int, missing: dict[str, list[str]]) -> None:
        for node in nodes:
            function = self.function(node, opset)
            if function is not None:
                self._collect(function.node, opset_of(function.opset_import, opset), missing)
            elif not self.has_converter(node) and not may_be_opaque(node):
                operator = f"{node.domain}.{node.op_type}" if node.domain not in STANDARD else node.op_type
                missing.setdefault(operator, []).append(f"'{node.name or next(iter(node.output), '')}'")
            for graph in sub_graphs(node):
                self._collect(graph.node, opset, missing)

    def has_converter(self, node: NodeProto) -> bool:
        """Whether an operator has a converter, ours or TVM's, or is evaluated while importing."""
        known = node.op_type in CONVERTERS or node.op_type in tvm_converters() or node.op_type in EVALUATED
        by_definition = node.op_type in _BY_DEFINITION and node.domain in STANDARD
        implemented = node.domain in _DOMAINS and not by_definition and (known or node.op_type == "If")
        return implemented and is_of_tensors(node)

    def function(self, node: NodeProto, opset: int, inputs: list[Any] | None = None) -> onnx.FunctionProto | None:
        """The body of an operator that the model defines itself, or that only the standard's definition implements.

        Some definitions depend on the types of the inputs: without `inputs` they are given without their nodes.
        """
        own = self.own(node)
        if own is not None or self.has_converter(node) or node.domain not in STANDARD:
            return own
        try:
            schema = onnx.defs.get_schema(node.op_type, opset, "")
        except onnx.defs.SchemaError:
            return None
        if schema.has_context_dependent_function:
            if inputs is None:
                return onnx.FunctionProto()
            types = [_type(value).SerializeToString() for value in inputs]
            version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
            return onnx.FunctionProto.FromString(
                schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
            )
        return schema.function_body if schema.has_function else None


def opset_of(imports: Iterable[onnx.OperatorSetIdProto], default: int = 1) -> int:
    """The version of ONNX's own operators among imports."""
    return next((int(entry.version) for entry in imports if entry.domain in STANDARD), default)


def _type(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype_of(value.ty)))
    return onnx.helper.make_tensor_type_proto(element, static_shape(value.ty))
