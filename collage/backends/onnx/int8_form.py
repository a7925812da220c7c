"""Products in eight bits in the form in which ONNX Runtime recognises them.

It computes a convolution in eight bits only where the bias is the convolution's own operand, of int32, and where the
result is quantised at once; a product of matrices where the bias is of int32
(https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html, "Quantized model representation"). In
Relax a bias is a sum, and a relu comes before the quantisation that clamps to what is not negative anyway.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

_LARGEST = 2**31 - 1
#: Of a bound, by which what is quantised may pass it.
_SLACK = 1e-6


def recognisable(model: ModelProto) -> ModelProto:
    """The model of a partition with products in eight bits, changed in place."""
    _Graph(model).quantise_biases()
    _Graph(model).remove_clamps()
    return model


class _Graph:
    """The nodes by what they make and read."""

    def __init__(self, model: ModelProto) -> None:
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.reads = Counter(name for node in self.graph.node for name in node.input)
        self.reads.update(value.name for value in self.graph.output)

    def array(self, name: str) -> np.ndarray:
        """The value of an initializer."""
        return np.asarray(numpy_helper.to_array(self.constants[name]))

    def quantise_biases(self) -> None:
        """Biases of products in eight bits are of int32, in steps of data times weights; convolutions own theirs."""
        nodes: list[NodeProto] = []
        for node in self.graph.node:
            found = self._product_and_bias(node)
            if found is None:
                nodes.append(node)
                continue
            product, bias, values, scale = found
            stem = f"{node.output[0]}_bias"
            arrays = {
                f"{stem}_int32": np.rint(values / scale).astype(np.int32),
                f"{stem}_scale": scale,
                f"{stem}_zero": np.zeros(scale.size, np.int32),
            }
            self.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
            quantised = helper.make_node("DequantizeLinear", list(arrays), [stem], name=stem, axis=0)
            if product.op_type == "MatMul":
                node.input[list(node.input).index(bias)] = stem
                nodes += [quantised, node]
            else:
                nodes.insert(nodes.index(product), quantised)
                product.input.append(stem)
                product.output[0] = node.output[0]
                self.makers[node.output[0]] = product
        self._replace(nodes)

    def _product_and_bias(self, node: NodeProto) -> tuple[NodeProto, str, np.ndarray, np.ndarray] | None:
        """Of a sum: the product in eight bits, the name and the values of the bias, and the scale of its steps."""
        makers = [self.makers.get(name) for name in node.input] if node.op_type == "Add" else []
        product = next((m for m in makers if m is not None and m.op_type in ("Conv", "MatMul")), None)
        if product is None or self.reads[product.output[0]] > 1 or len(product.input) > 2:
            return None
        sides = [m for m in map(self.makers.get, product.input) if m is not None and m.op_type == "DequantizeLinear"]
        bias = next((name for name in node.input if name in self.constants), "")
        if not bias or len(sides) < 2 or not all(side.input[1] in self.constants for side in sides):
            return None
        data, weights = (self.array(side.input[1]) for side in sides)
        values, scale = self.array(bias), data * weights
        # Channels are the last axis of a product of matrices, and have the windows' axes behind them in a convolution.
        axis = 1 if product.op_type == "MatMul" else len(self.constants[sides[1].input[0]].dims) - 1
        if data.size > 1 or values.ndim < axis or values.size != scale.size or values.shape[-axis] != scale.size:
            return None
        values = values.reshape(-1)
        return (product, bias, values, scale) if np.abs(values / scale).max() < _LARGEST else None

    def remove_clamps(self) -> None:
        """What clamps to a range goes where quantisation to that range, or a smaller one, follows, and nothing else."""
        nodes: list[NodeProto] = []
        for node in self.graph.node:
            clamp = self.makers.get(node.input[0]) if node.op_type == "QuantizeLinear" else None
            if clamp is not None and self.reads[clamp.output[0]] == 1 and self._contains(clamp, node):
                nodes.remove(clamp)
                node.input[0] = clamp.input[0]
            nodes.append(node)
        self._replace(nodes)

    def _contains(self, clamp: NodeProto, quantise: NodeProto) -> bool:
        """Whether a clamp lets through all that a quantisation does."""
        step = [self.array(name) for name in quantise.input[1:] if name in self.constants]
        if clamp.op_type not in ("Relu", "Clip") or len(step) < 2 or step[0].size > 1 or step[1].dtype != np.uint8:
            return False
        names = [*clamp.input[1:], "", ""][:2] if clamp.op_type == "Clip" else ["", ""]
        low, high = (float(self.array(name)) if name in self.constants else None for name in names)
        low = 0.0 if clamp.op_type == "Relu" else low
        scale, zero = map(float, step)
        lowest, highest = -zero * scale, (255 - zero) * scale
        return (low is None or low <= lowest) and (high is None or highest <= high * (1 + _SLACK))

    def _replace(self, nodes: list[NodeProto]) -> None:
        kept = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.graph.node[:]
        self.graph.node.extend(kept)
