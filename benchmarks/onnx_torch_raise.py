"""From an exported ONNX graph back to the layers that it was written in.

An exporter takes layers apart: a linear map becomes a product and a sum, GELU five operators, attention a dozen.
PyTorch has kernels for the layers, and is measured with those: nodes of the graph are replaced by one node of an
operator of ours, its weights as PyTorch keeps them. A batch normalisation behind a convolution goes into its weights,
as in every deployment; in float64, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper, shape_inference

#: Operators that ONNX does not have: linear(x, weight (out, in), bias); gelu(x); attention(query, key as (.., width,
#: sequence), value, additive mask) with `scale`.
LINEAR, GELU, ATTENTION = "collage.Linear", "collage.Gelu", "collage.Attention"


def raised(model: ModelProto) -> ModelProto:
    """A copy of the model with layers in place of what they were taken apart to."""
    result = ModelProto()
    result.CopyFrom(shape_inference.infer_shapes(model))
    graph = _Graph(result.graph)
    for rule in (_fold_norm, _linear, _gelu, _attention):
        for node in list(result.graph.node):
            if node.name not in graph.gone:
                rule(graph, node)
    graph.finish()
    return result


class _Graph:
    """Which node makes a value, which nodes read it, and the values of weights."""

    def __init__(self, proto: GraphProto) -> None:
        self.proto = proto
        self.gone: set[str] = set()
        self.weights = {tensor.name: tensor for tensor in proto.initializer}
        self._outputs = {value.name for value in proto.output}
        self._index()

    def _index(self) -> None:
        self.maker: dict[str, NodeProto] = {}
        self.readers: dict[str, list[NodeProto]] = {}
        for node in self.proto.node:
            if node.name in self.gone:
                continue
            for name in node.output:
                self.maker[name] = node
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def only_reader(self, node: NodeProto, operator: str) -> NodeProto | None:
        """The one node that reads a node's result, if it is of this operator."""
        readers = self.readers.get(node.output[0], [])
        alone = len(readers) == 1 and node.output[0] not in self._outputs
        return readers[0] if alone and readers[0].op_type == operator else None

    def chain(self, node: NodeProto, *operators: str) -> list[NodeProto] | None:
        """The node and those after it, each the only reader of the one before, if they are of these operators."""
        found = [node]
        for operator in operators:
            following = self.only_reader(found[-1], operator)
            if following is None:
                return None
            found.append(following)
        return found

    def array(self, name: str) -> np.ndarray | None:
        tensor = self.weights.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def is_number(self, name: str, number: float) -> bool:
        array = self.array(name)
        return array is not None and array.size == 1 and bool(np.isclose(float(array.item()), number, rtol=2e-3))

    def add_weight(self, name: str, array: np.ndarray) -> str:
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.proto.initializer.append(tensor)
        self.weights[name] = tensor
        return name

    def replace(self, old: Sequence[NodeProto], operator: str, inputs: Sequence[str], **attributes: Any) -> None:
        """One node for several; it stands where the last of them stood and gives what that gave."""
        last = old[-1]
        made = helper.make_node(operator, list(inputs), list(last.output), name=f"{last.name}_raised", **attributes)
        self.gone.update(node.name for node in old)
        for position, node in enumerate(self.proto.node):
            if node.name == last.name:
                self.proto.node.insert(position, made)
                break
        self._index()

    def finish(self) -> None:
        """Leave out the nodes that were replaced and the weights without a reader."""
        nodes = [node for node in self.proto.node if node.name not in self.gone]
        used = {name for node in nodes for name in node.input}
        weights = [tensor for tensor in self.proto.initializer if tensor.name in used]
        for field, kept in ((self.proto.node, nodes), (self.proto.initializer, weights)):
            copies = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
            del field[:]
            field.extend(copies)


def _fold_norm(graph: _Graph, node: NodeProto) -> None:
    """Conv or ConvTranspose, then BatchNormalization -> the operator with other weights and a bias."""
    norm = graph.only_reader(node, "BatchNormalization") if node.op_type in ("Conv", "ConvTranspose") else None
    weight = graph.array(node.input[1]) if norm is not None else None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if norm is None or weight is None or len(node.input) > 2:
        return
    if node.op_type == "ConvTranspose" and attributes.get("group", 1) != 1:
        return
    found = [graph.array(name) for name in norm.input[1:]]
    gamma, beta, mean, variance = (np.asarray(array, "float64") for array in found)
    epsilon = next(a.f for a in norm.attribute if a.name == "epsilon")
    scale = gamma / np.sqrt(variance + epsilon)
    channel = 0 if node.op_type == "Conv" else 1
    extents = [-1 if axis == channel else 1 for axis in range(weight.ndim)]
    scaled = (weight.astype("float64") * scale.reshape(extents)).astype(weight.dtype)
    shift = (beta - mean * scale).astype(weight.dtype)
    inputs = (
        node.input[0],
        graph.add_weight(f"{norm.name}_weight", scaled),
        graph.add_weight(f"{norm.name}_bias", shift),
    )
    graph.replace((node, norm), node.op_type, inputs, **attributes)


def _linear(graph: _Graph, node: NodeProto) -> None:
    """MatMul by a matrix of weights, then Add of a vector -> linear."""
    weight = graph.array(node.input[1]) if node.op_type == "MatMul" else None
    if weight is None or weight.ndim != 2:
        return
    add = graph.only_reader(node, "Add")
    bias = next((name for name in add.input if name != node.output[0]), "") if add is not None else ""
    vector = graph.array(bias)
    if add is None or vector is None or vector.ndim != 1:
        return
    graph.replace((node, add), LINEAR, (node.input[0], graph.add_weight(f"{node.name}_weight", weight.T), bias))


def _gelu(graph: _Graph, node: NodeProto) -> None:
    """x / sqrt 2, Erf, + 1, * x, * 1/2 -> gelu."""
    if node.op_type != "Div" or not graph.is_number(node.input[1], 2.0**0.5):
        return
    chain = graph.chain(node, "Erf", "Add", "Mul", "Mul")
    if chain is None:
        return
    _, erf, one, times_x, half = chain
    rest = [
        next((name for name in after.input if name != before.output[0]), "")
        for before, after in ((erf, one), (one, times_x), (times_x, half))
    ]
    if graph.is_number(rest[0], 1.0) and rest[1] == node.input[0] and graph.is_number(rest[2], 0.5):
        graph.replace(chain, GELU, (node.input[0],))


def _attention(graph: _Graph, node: NodeProto) -> None:
    """Products of queries and keys, scaled, masked, Softmax, product with values -> attention."""
    if node.op_type != "MatMul" or node.input[0] in graph.weights or node.input[1] in graph.weights:
        return
    chain = graph.chain(node, "Mul", "Add", "Softmax", "MatMul")
    if chain is None:
        return
    product, scaled, masked, weights, mixed = chain
    factor = graph.array(next((name for name in scaled.input if name != product.output[0]), ""))
    mask = next((name for name in masked.input if name != scaled.output[0]), "")
    if factor is None or factor.size != 1 or mixed.input[0] != weights.output[0]:
        return
    inputs = (product.input[0], product.input[1], mixed.input[1], mask)
    graph.replace(chain, ATTENTION, inputs, scale=float(factor.item()))
