"""Opaque nodes: operators of ONNX that Relax cannot say, kept as ONNX in the Relax graph.

An opaque node is one call of a packed function: `R.call_pure_packed("collage.onnx.node", FUNCTION, tensor, ...)`.
FUNCTION is an `onnx.FunctionProto` as text: the operator, or a whole sub-graph of ONNX, with the operator sets that it
is of. Its formal inputs are the tensors of the call, in order; weights are among them. Equal nodes have equal text:
names and comments are taken out.

Backends that speak ONNX put the function back into what they export. Others do not take it, nor does TVM; where
reference values are computed, ONNX Runtime stands behind the packed function.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto
from tvm import relax

#: Types of ONNX that exist inside of opaque nodes only: floats of eight bits and less, integers of four bits and less.
NARROW = frozenset(
    number
    for name, number in TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT4")) or name in ("INT4", "UINT4", "INT2", "UINT2")
)
#: Attributes that name the type of a result.
_RESULT_TYPES = frozenset(("to", "dtype", "output_dtype"))

#: The packed function that an opaque node calls.
CALLEE = "collage.onnx.node"
#: How the names of opaque nodes begin in graphs, records and reports.
PREFIX = "onnx."

_CALL = "relax.call_pure_packed"


def opaque_call(function: FunctionProto, tensors: Sequence[Any], types: Sequence[Any]) -> Any:
    """The Relax call of an opaque node.

    Parameters
    ----------
    function
        What it runs.
    tensors
        One Relax expression per formal input.
    types
        One Relax type per formal output.
    """
    text = base64.b64encode(function.SerializeToString(deterministic=True)).decode()
    result = types[0] if len(types) == 1 else relax.TupleType(list(types))
    return relax.op.call_pure_packed(CALLEE, tvm.ir.StringImm(text), *tensors, ty_args=[result])


def is_opaque(expression: Any) -> bool:
    """Whether a Relax expression is the call of an opaque node."""
    return (
        isinstance(expression, relax.Call)
        and isinstance(expression.op, tvm.ir.Op)
        and expression.op.name == _CALL
        and isinstance(expression.args[0], relax.ExternFunc)
        and str(expression.args[0].global_symbol) == CALLEE
    )


def function_of(call: Any) -> FunctionProto:
    """What an opaque node runs; not to be changed."""
    return decoded(str(call.args[1].value))


def tensors_of(call: Any) -> list[Any]:
    """The operands of an opaque node, in the order of its formal inputs."""
    return list(call.args[2:])


def opaque_calls(function: Any) -> Iterator[Any]:
    """The opaque nodes of a Relax function."""
    for block in function.body.blocks:
        for binding in block.bindings:
            if is_opaque(binding.value):
                yield binding.value


@lru_cache(maxsize=256)
def decoded(text: str) -> FunctionProto:
    """The function that a call carries as text."""
    return FunctionProto.FromString(base64.b64decode(text))


def opaque_name(call: Any) -> str:
    """The name of an opaque node: "onnx.LSTM"; the first of several operators stands for all of them."""
    return PREFIX + operator_of(function_of(call))


def operator_of(function: FunctionProto) -> str:
    """The operator of a function, with its domain where that is not ONNX's; of a sub-graph the first, with a "+"."""
    node = function.node[0]
    name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    return name + ("+" if len(function.node) > 1 else "")


def opaque_attributes(call: Any) -> dict[str, Any]:
    """What tells two opaque nodes apart besides the types of their operands: a digest, and the plain attributes of a
    single operator.
    """
    nodes = function_of(call).node
    plain = {a.name: _plain(a) for a in nodes[0].attribute if a.type in _PLAIN} if len(nodes) == 1 else {}
    operators = [node.op_type for node in nodes]
    digest = hashlib.sha256(str(call.args[1].value).encode()).hexdigest()
    return {**dict(sorted(plain.items())), "operators": operators, "onnx": digest}


_PLAIN = frozenset(
    (AttributeProto.INT, AttributeProto.INTS, AttributeProto.FLOAT, AttributeProto.STRING, AttributeProto.STRINGS)
)


def _plain(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return (
        [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]
        if hasattr(value, "__iter__")
        else value
    )


def sub_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in a node's attributes: branches and loop bodies."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def makes_narrow(nodes: Iterable[NodeProto]) -> bool:
    """Whether nodes, or those of their sub-graphs, give or hold values of the types in `NARROW`."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in _RESULT_TYPES and attribute.i in NARROW:
                return True
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in NARROW:
                return True
        for graph in sub_graphs(node):
            if makes_narrow(graph.node) or any(tensor.data_type in NARROW for tensor in graph.initializer):
                return True
    return False


def names_read(node: NodeProto) -> list[str]:
    """The values around a node that it reads, each once: its inputs, and what its sub-graphs name besides their own."""
    read = dict.fromkeys(name for name in node.input if name)
    for graph in sub_graphs(node):
        inside = {value.name for value in (*graph.input, *graph.initializer)}
        inside |= {tensor.values.name for tensor in graph.sparse_initializer}
        for inner in graph.node:
            read |= dict.fromkeys(name for name in names_read(inner) if name not in inside)
            inside |= set(inner.output)
        read |= dict.fromkeys(value.name for value in graph.output if value.name not in inside)
    return list(read)


def renamed(node: NodeProto, names: Mapping[str, str], fresh: Callable[[str], str]) -> NodeProto:
    """A copy of a node that reads and writes values of other names, without a name or comment of its own.

    Parameters
    ----------
    names
        What the values of the scope around it are called; all that it reads and writes.
    fresh
        Gives each value inside its sub-graphs a name.
    """
    result = NodeProto()
    result.CopyFrom(node)
    result.ClearField("name")
    result.ClearField("doc_string")
    del result.metadata_props[:]
    result.input[:] = [names[name] if name else "" for name in node.input]
    result.output[:] = [names[name] if name else "" for name in node.output]
    for graph in sub_graphs(result):
        _rename_inside(graph, names, fresh)
    return result


def _rename_inside(graph: GraphProto, outer: Mapping[str, str], fresh: Callable[[str], str]) -> None:
    own = [*(v.name for v in graph.input), *(t.name for t in graph.initializer)]
    own += [tensor.values.name for tensor in graph.sparse_initializer]
    own += [name for inner in graph.node for name in inner.output if name]
    names = {**outer, **{name: fresh(name) for name in dict.fromkeys(own)}}
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
        value.ClearField("doc_string")
    for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
        tensor.name = names[tensor.name]
    nodes = [renamed(inner, names, fresh) for inner in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]  # of the shapes that the network was exported with
    graph.ClearField("doc_string")
    graph.name = "graph"


def operator_sets(nodes: Iterable[NodeProto]) -> set[str]:
    """The domains of the operators of nodes and of their sub-graphs; ONNX's own is ""."""
    found = set()
    for node in nodes:
        found.add("" if node.domain == "ai.onnx" else node.domain)
        for graph in sub_graphs(node):
            found |= operator_sets(graph.node)
    return found


def model_of(
    function: FunctionProto, types: Sequence[tuple[Sequence[int], str]], known: Mapping[int, np.ndarray]
) -> ModelProto:
    """A model of a function alone, its outputs without types.

    Parameters
    ----------
    types
        Shape and dtype of each formal input.
    known
        Position -> value of inputs that are constants in it; the others are its inputs.
    """
    graph = GraphProto(name="part", node=function.node)
    for position, (name, (shape, dtype)) in enumerate(zip(function.input, types, strict=True)):
        if position in known:
            graph.initializer.append(
                onnx.numpy_helper.from_array(np.ascontiguousarray(known[position]).reshape(shape), name)
            )
        else:
            element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            graph.input.append(onnx.helper.make_tensor_value_info(name, element, list(shape)))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
    opsets = [entry.version for entry in function.opset_import if not entry.domain]
    ir_version = next((ir for version, ir in _IR_VERSIONS if max(opsets, default=1) <= version), _IR_VERSIONS[-1][1])
    return ModelProto(ir_version=ir_version, graph=graph, opset_import=function.opset_import)


#: The newest opset of an IR version -> that version.
_IR_VERSIONS = ((20, 9), (22, 10), (23, 11), (25, 12), (26, 13))
