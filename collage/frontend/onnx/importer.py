"""ONNX graph -> Relax: walks the nodes; our converters come first, then TVM's, one at a time.

TVM's own walk (`from_onnx`) is not used: it keeps dynamic shapes, lowers some operators to TIR functions at once
(no pattern matches them and no exporter reads them), prints to standard output,
and does not say which node it failed on. Its table of converters is only read. Here every shape is static while
importing, so that shape arithmetic is evaluated on the spot, a constant condition chooses its branch, and an
operator that is defined by a function (of the model or of the ONNX standard) is imported through that function when
no converter exists. What none of these can say becomes an opaque node (`collage.frontend.onnx.opaque`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import NodeProto, TensorProto
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from collage.annotations.opaque import NARROW, names_read, opaque_call
from collage.errors import CollageError, FrontendError, UnsupportedOperatorError
from collage.frontend.onnx.adapt import adapt
from collage.frontend.onnx.converters import CONVERTERS
from collage.frontend.onnx.definitions import STANDARD, Definitions, opset_of, tvm_converters
from collage.frontend.onnx.file import OnnxSource, check_dtype, check_model, describe_node, read_tensor
from collage.frontend.onnx.inference import extents
from collage.frontend.onnx.node import EVALUATED, Node, bind_attributes, evaluate
from collage.frontend.onnx.opaque import (
    Deferred,
    Narrow,
    OpaquePart,
    Producer,
    computed,
    may_be_opaque,
    narrow_constant,
    result_types,
)
from collage.frontend.shapes import Shape, bind_shapes, declared_onnx_inputs
from collage.frontend.values import OUTPUT_NAMES, constant, dtype_of, static_shape, value_of


def import_onnx(source: OnnxSource, shapes: Mapping[str, Shape]) -> tvm.IRModule:
    """A Relax module with one function `main` and static shapes, not yet canonical.

    Raises
    ------
    UnboundDimensionError, UnsupportedOperatorError, FrontendError
        See `collage.frontend.load`.
    """
    check_model(source)
    bound = bind_shapes(declared_onnx_inputs(source.model.graph), shapes, least=0)
    importer = _Importer(source)
    return importer.run(bound)


class _Scope:
    """The values that a graph or function body can name; branches see those of the graph around them."""

    def __init__(self, opset: int, graph: onnx.GraphProto | None = None, outer: _Scope | None = None) -> None:
        self.opset = opset
        self.values: dict[str, Any] = {}
        self.tensors = {tensor.name: tensor for tensor in graph.initializer} if graph is not None else {}
        self.outer = outer


class _Importer:
    def __init__(self, source: OnnxSource) -> None:
        self._model = source.model
        self._folder = source.folder
        self._definitions = Definitions(source.model.functions)
        self._builder = relax.BlockBuilder()
        #: The part of the network whose shapes depend on data.
        self._dependent = OpaquePart(source.folder)

    def run(self, shapes: Mapping[str, Shape]) -> tvm.IRModule:
        graph = self._model.graph
        opset = opset_of(self._model.opset_import)
        self._definitions.require(graph.node, opset)
        scope = _Scope(opset, graph)
        parameters = []
        for value in graph.input:
            if value.name in shapes:
                dtype = _dtype(value.type.tensor_type.elem_type, value.name)
                scope.values[value.name] = relax.Var(value.name, relax.TensorType(shapes[value.name], dtype))
                parameters.append(scope.values[value.name])
        try:
            with self._builder.function("main", parameters):
                with self._builder.dataflow():
                    self._nodes(graph.node, scope)
                    outputs = [self._lookup(value.name, scope, f"output '{value.name}'") for value in graph.output]
                    _refuse_narrow(outputs, graph.output)
                    outputs = self._with_dependent(outputs, graph.output)
                    result = self._builder.emit_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
                self._builder.emit_func_output(result)
        except BaseException:
            self._builder._end_block()  # else TVM warns on standard error that it was left open
            raise
        mod = self._builder.get()
        mod["main"] = mod["main"].with_attr(OUTPUT_NAMES, [value.name for value in graph.output])
        return mod

    def _nodes(self, nodes: Iterable[NodeProto], scope: _Scope) -> None:
        for node in nodes:
            try:
                self._node(node, scope)
            except CollageError:
                raise
            except Exception as error:  # converters raise whatever they like: TVM, protobuf, index and assertion errors
                reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
                raise FrontendError(f"{describe_node(node)} cannot be imported: {reason}") from error

    def _node(self, node: NodeProto, scope: _Scope) -> None:
        inputs = [self._lookup(name, scope, describe_node(node)) if name else None for name in node.input]
        while inputs and inputs[-1] is None:
            inputs.pop()
        read = [self._lookup(name, scope, describe_node(node)) for name in names_read(node)]
        own = self._definitions.own(node)
        results: list[Any]
        if own is None and any(isinstance(value, Deferred) for value in read):
            results = self._defer(node, scope)
        elif own is None and any(isinstance(value, Narrow) for value in read):
            results = self._opaque(node, scope)
        else:
            results = self._translated(node, inputs, scope)
        for name, result in zip(node.output, results, strict=False):
            if name:
                scope.values[name] = result

    def _translated(self, node: NodeProto, inputs: list[Any], scope: _Scope) -> list[Any]:
        """The outputs of a node as Relax says it; as an opaque node where Relax cannot."""
        unknown = not self._definitions.knows(node, scope.opset)
        if unknown or any(map(_is_empty_variable, inputs)):
            return self._opaque(node, scope)
        try:
            return self._named(self._relax(node, inputs, scope), node)
        except FrontendError as error:
            if not isinstance(error, UnsupportedOperatorError):
                raise
            reason: Exception = error
        except Exception as error:  # converters raise whatever they like: TVM, protobuf, index and assertion errors
            reason = error
        if not may_be_opaque(node):
            raise reason
        try:
            return self._opaque(node, scope)
        except UnsupportedOperatorError:
            raise reason from None

    def _relax(self, node: NodeProto, inputs: list[Any], scope: _Scope) -> list[Any]:
        if node.op_type == "If" and node.domain in STANDARD:
            return self._branch(node, inputs[0], scope)
        if (function := self._definitions.function(node, scope.opset, inputs)) is not None:
            self._definitions.require(function.node, opset_of(function.opset_import, scope.opset))
            if self._definitions.own(node) is not None:
                return self._call_function(node, function, inputs, scope)
            kept = self._dependent.copy()
            try:
                results = self._call_function(node, function, inputs, scope)
            except FrontendError as error:
                self._dependent = kept
                raise UnsupportedOperatorError(f"{describe_node(node)}, by its definition: {error}") from error
            if any(isinstance(value, Deferred) for value in results):
                self._dependent = kept
                raise UnsupportedOperatorError(f"{describe_node(node)}: the shape of its result depends on data")
            return results
        if node.op_type in EVALUATED and all(
            value is None or isinstance(value, tvm.ir.GenericConst) for value in inputs
        ):
            arrays = [value_of(value) for value in inputs]
            return [constant(array) for array in evaluate(node, arrays, scope.opset)]
        return self._convert(node, inputs, scope)

    def _opaque(self, node: NodeProto, scope: _Scope) -> list[Any]:
        """The outputs of a node that stays ONNX."""
        part = OpaquePart(self._folder)
        outputs = part.add(node, self._reader(node, scope), self._opsets(scope))
        wanted = [value for value in outputs if value is not None]
        types = result_types(node, part.function(wanted), part.operands)
        if None in types:
            return self._narrow(node, scope, [ty is None for ty in types])
        function = part.function(wanted)
        if any(static_shape(ty) is None for ty in types):
            return self._defer(node, scope)
        if part.takes_narrow and all(isinstance(operand, tvm.ir.GenericConst) for operand in part.operands):
            arrays = iter(computed(node, function, part.operands))
            return [None if value is None else constant(next(arrays)) for value in outputs]
        whole = self._builder.emit(opaque_call(function, part.operands, types), name_hint=node.op_type)
        fields = iter([whole] if len(types) == 1 else [relax.TupleGetItem(whole, i) for i in range(len(types))])
        results = [None if value is None else next(fields) for value in outputs]
        if not any(map(_is_empty, types)):
            return self._named(results, node)
        return [value if value is None else self._builder.emit(value) for value in results]

    def _narrow(self, node: NodeProto, scope: _Scope, narrow: Sequence[bool]) -> list[Any]:
        """The outputs of a node of which some are of narrow types: those are computed where they are read."""
        if not all(narrow):
            raise UnsupportedOperatorError(f"{describe_node(node)}: some results are of narrow types: not supported")
        producer = Producer(node, self._reader(node, scope), self._opsets(scope))
        return [Narrow(producer, i) if name else None for i, name in enumerate(node.output)]

    def _defer(self, node: NodeProto, scope: _Scope) -> list[Any]:
        """The outputs of a node whose shapes depend on data: it joins the part that has all of these."""
        return list(self._dependent.add(node, self._reader(node, scope), self._opsets(scope)))

    def _with_dependent(self, outputs: list[Any], declared: Iterable[onnx.ValueInfoProto]) -> list[Any]:
        """The network's outputs; those of the part whose shapes depend on data as results of one opaque node, with the
        ranks that the network declares where they do not follow.
        """
        given = ((v, extents(info.type.tensor_type)) for v, info in zip(outputs, declared, strict=True))
        wanted = {value: shape for value, shape in given if isinstance(value, Deferred)}
        if not wanted:
            return outputs
        function = self._dependent.function(list(wanted))
        types = result_types(self._dependent.first, function, self._dependent.operands, list(wanted.values()))
        if any(ty is None or ty.ndim < 0 for ty in types):
            first = describe_node(self._dependent.first)
            raise UnsupportedOperatorError(f"{first}: the rank of an output that follows from it depends on data")
        call = self._builder.emit(opaque_call(function, self._dependent.operands, types), name_hint="dependent")
        fields = (
            [call] if len(wanted) == 1 else [self._builder.emit(relax.TupleGetItem(call, i)) for i in range(len(types))]
        )
        known = dict(zip(wanted, fields, strict=True))
        return [known.get(value, value) if isinstance(value, Deferred) else value for value in outputs]

    def _reader(self, node: NodeProto, scope: _Scope) -> Callable[[str], Any]:
        return lambda name: self._lookup(name, scope, describe_node(node))

    def _opsets(self, scope: _Scope) -> dict[str, int]:
        return {**{entry.domain: int(entry.version) for entry in self._model.opset_import}, "": scope.opset}

    def _convert(self, node: NodeProto, inputs: list[Any], scope: _Scope) -> list[Any]:
        """The outputs of a node, by our converter or by TVM's."""
        view = Node(node, inputs, scope.opset, self._folder)
        if node.op_type in CONVERTERS:
            result = CONVERTERS[node.op_type](view)
        elif node.op_type in tvm_converters():
            adapt(view)
            attributes: dict[str, Any] = {name: _for_tvm(value) for name, value in view.attributes.items()}
            attributes["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output)}
            convert = tvm_converters()[node.op_type].get_converter(scope.opset)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = convert(self._builder, onnx_frontend.onnx_input(inputs), attributes, [{}, {}])
        else:
            raise UnsupportedOperatorError(f"{describe_node(node)}: its inputs have to be constants")
        if isinstance(result, list):
            return result
        result = self._builder.normalize(result)
        if isinstance(result, relax.Tuple):
            return list(result.fields)
        if isinstance(result.ty, relax.TupleType):
            whole = self._builder.emit(result)
            return [relax.TupleGetItem(whole, i) for i in range(len(result.ty.fields))]
        return [result]

    def _named(self, results: Sequence[Any], node: NodeProto) -> list[Any]:
        """Bind results to variables that are called after them in the model; those without a name are left out."""
        names = [*node.output, *[""] * len(results)]
        if any(node.output[len(results) :]):
            raise UnsupportedOperatorError(
                f"{describe_node(node)}: only its first {len(results)} outputs are supported"
            )
        return [self._bound(v, name, node) if name else None for v, name in zip(results, names, strict=False)]

    def _bound(self, value: Any, name: str, node: NodeProto) -> Any:
        """Bind a result; its shape has to be static."""
        if isinstance(value, (Deferred, Narrow)):
            return value
        if isinstance(value, relax.ShapeExpr):
            return constant([int(extent) for extent in value.values], "int64")
        if isinstance(value, tvm.tirx.IntImm):
            return constant(int(value), "int64")
        if isinstance(getattr(value, "ty", None), relax.TensorType):
            check_dtype(dtype_of(value.ty), f"{describe_node(node)}: '{name}'")
        if not isinstance(value, (relax.Var, tvm.ir.GenericConst)):
            value = self._builder.emit(value, name_hint=re.sub(r"\W", "_", name))
        if _is_empty(value.ty):
            return constant(np.zeros(static_shape(value.ty) or (), dtype_of(value.ty)))  # TVM divides by its extents
        if isinstance(value.ty, relax.TensorType) and static_shape(value.ty) is None:
            raise UnsupportedOperatorError(
                f"{describe_node(node)}: the shape of '{name}' depends on data, which cannot be compiled"
            )
        if not isinstance(value.ty, relax.TensorType):
            raise UnsupportedOperatorError(
                f"{describe_node(node)}: '{name}' is not a tensor but a {value.ty}, which cannot be compiled"
            )
        return value

    def _branch(self, node: NodeProto, condition: Any, scope: _Scope) -> list[Any]:
        """`If` with a constant condition: the nodes of the branch that it takes."""
        if not isinstance(condition, tvm.ir.GenericConst):
            raise UnsupportedOperatorError(f"{describe_node(node)}: its condition depends on data")
        chosen = "then_branch" if bool(np.all(condition.value.numpy())) else "else_branch"
        graph = next(attribute.g for attribute in node.attribute if attribute.name == chosen)
        inner = _Scope(scope.opset, graph, scope)
        self._nodes(graph.node, inner)
        return [self._lookup(value.name, inner, describe_node(node)) for value in graph.output]

    def _call_function(
        self, node: NodeProto, function: onnx.FunctionProto, inputs: list[Any], scope: _Scope
    ) -> list[Any]:
        """The nodes of a function's body, with the call's inputs and attributes in place of the formal ones."""
        inner = _Scope(opset_of(function.opset_import, scope.opset))
        inner.values.update(zip(function.input, inputs, strict=False))
        attributes = {attribute.name: attribute for attribute in (*function.attribute_proto, *node.attribute)}
        self._nodes((bind_attributes(inside, attributes) for inside in function.node), inner)
        wanted = zip(function.output, node.output, strict=False)
        return [self._lookup(formal, inner, describe_node(node)) if actual else None for formal, actual in wanted]

    def _lookup(self, name: str, scope: _Scope | None, reader: str) -> Any:
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.tensors and scope.tensors[name].data_type in NARROW:
                scope.values[name] = narrow_constant(scope.tensors[name], self._folder, self._opsets(scope))
                return scope.values[name]
            if name in scope.tensors:
                array = read_tensor(scope.tensors[name], self._folder)
                check_dtype(str(array.dtype), f"{reader}: '{name}'")
                scope.values[name] = constant(array)
                return scope.values[name]
            scope = scope.outer
        raise FrontendError(
            f"{reader} reads '{name}', which is no input, no stored tensor and no earlier node's output"
        )


def _dtype(element_type: int, name: str) -> str:
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element_type)
    except (KeyError, ValueError):
        raise FrontendError(f"input '{name}' has no element type that is known: {element_type}") from None
    if dtype == np.dtype(object):
        raise FrontendError(f"input '{name}' is a tensor of strings, which cannot be compiled")
    check_dtype(str(dtype), f"input '{name}'")
    return str(dtype)


def _for_tvm(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _refuse_narrow(outputs: Iterable[Any], declared: Iterable[onnx.ValueInfoProto]) -> None:
    for value, info in zip(outputs, declared, strict=True):
        if isinstance(value, Narrow):
            dtype = TensorProto.DataType.Name(info.type.tensor_type.elem_type).lower()
            raise UnsupportedOperatorError(f"output '{info.name}' has dtype {dtype}: not supported")


def _is_empty(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and 0 in (static_shape(ty) or ())


def _is_empty_variable(value: Any) -> bool:
    """Whether a value is a tensor without elements that is not a constant: TVM divides by its extents."""
    return isinstance(value, relax.Var) and _is_empty(value.ty)
