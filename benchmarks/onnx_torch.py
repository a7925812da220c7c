"""An ONNX network as a PyTorch module, for comparing with PyTorch on the same weights.

    module = to_torch(build("bert_base", dtype="float16"))     # torch.fx.GraphModule: tensors to a tuple of tensors
    outputs = module(*map(tensor_of, inputs.values()))

Exactly the operators of the benchmark's networks, at opset 17. What a user of PyTorch would write is what is made:
first (`benchmarks.onnx_torch_raise`) batch normalisations go into the weights of convolutions, products with a bias
become `linear`, attention `scaled_dot_product_attention`, the error function's chain `gelu`. `literal=True` translates
node by node instead, as a reference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference
from torch import fx
from torch.nn import functional

from benchmarks.onnx_torch_raise import ATTENTION, GELU, LINEAR, raised

_TYPES: Mapping[int, torch.dtype] = MappingProxyType(
    {
        TensorProto.FLOAT: torch.float32,
        TensorProto.FLOAT16: torch.float16,
        TensorProto.BFLOAT16: torch.bfloat16,
        TensorProto.DOUBLE: torch.float64,
        TensorProto.INT64: torch.int64,
        TensorProto.BOOL: torch.bool,
    }
)


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A copy of an array; PyTorch does not know ml_dtypes' bfloat16."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The values of a tensor; of bfloat16, which NumPy does not have, in float32."""
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()
    return array


def to_torch(model: ModelProto, dtype: torch.dtype | None = None, literal: bool = False) -> fx.GraphModule:
    """The module, in evaluation mode and on the CPU; its parameters need no gradients.

    Parameters
    ----------
    model
        Static shapes.
    dtype
        Of all floating-point tensors, in place of the model's own (inputs have to be given in it); None keeps that.
    literal
        One PyTorch call per ONNX node.

    Raises
    ------
    NotImplementedError
        An operator, or a use of one, has no translation; the message names the node.
    """
    module = _Translation(shape_inference.infer_shapes(model) if literal else raised(model), dtype).module()
    return module.eval().requires_grad_(False)


class _Translation:
    """An ONNX graph on its way to an fx graph."""

    def __init__(self, model: ModelProto, dtype: torch.dtype | None) -> None:
        self.proto = model.graph
        self.dtype = dtype
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        #: Values that are known: weights, and what is computed of them.
        self.known: dict[str, np.ndarray] = {t.name: numpy_helper.to_array(t) for t in self.proto.initializer}
        self.values: dict[str, fx.Node] = {}

    def module(self) -> fx.GraphModule:
        for value in self.proto.input:
            if value.name not in self.known:
                self.values[value.name] = self.graph.placeholder(value.name)
        for node in self.proto.node:
            translate = _TRANSLATIONS.get(node.op_type)
            if translate is None:
                raise NotImplementedError(f"{node.op_type} ({node.name}) has no translation to PyTorch")
            result = translate(self, node, {a.name: helper.get_attribute_value(a) for a in node.attribute})
            kept = self.known if isinstance(result, np.ndarray) else self.values
            if len(node.output) == 1:
                kept[node.output[0]] = result
                continue
            for position, name in enumerate(node.output):
                self.values[name] = self.call(operator.getitem, result, position)
        self.graph.output(tuple(self.value(output.name) for output in self.proto.output))
        return fx.GraphModule(self.root, self.graph)

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> fx.Node:
        return self.graph.call_function(function, arguments, keywords)

    def value(self, name: str) -> fx.Node:
        """A tensor; a known one becomes a parameter of the module when it is first asked for."""
        if name not in self.values:
            attribute = "w_" + "".join(c if c.isalnum() else "_" for c in name)
            array = self.known[name]
            tensor = tensor_of(array)
            tensor = tensor.to(self.dtype) if self.dtype is not None and tensor.is_floating_point() else tensor
            self.root.register_parameter(attribute, torch.nn.Parameter(tensor, requires_grad=False))
            self.values[name] = self.graph.get_attr(attribute)
        return self.values[name]

    def optional(self, node: NodeProto, position: int) -> fx.Node | None:
        present = len(node.input) > position and node.input[position]
        return self.value(node.input[position]) if present else None

    def operand(self, name: str) -> Any:
        """A tensor, or a Python number where it is a known scalar."""
        array = self.known.get(name)
        return array.item() if array is not None and array.size == 1 and array.ndim <= 1 else self.value(name)

    def integers(self, node: NodeProto, position: int) -> list[int]:
        """The known integers of an input: a shape, axes, pads."""
        if node.input[position] not in self.known:
            raise NotImplementedError(f"{node.op_type} ({node.name}): input {position} depends on data")
        return [int(i) for i in self.known[node.input[position]].reshape(-1)]

    def element_type(self, kind: int) -> torch.dtype:
        dtype = _TYPES[kind]
        return self.dtype if self.dtype is not None and dtype.is_floating_point else dtype


Attributes = Mapping[str, Any]


def _convolution(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    rank = len(attributes["kernel_shape"])
    x, pads = _padded(t, t.value(node.input[0]), attributes["pads"], 0.0)
    function = getattr(functional, f"conv{rank}d")
    options = (list(attributes["strides"]), pads, list(attributes["dilations"]), attributes["group"])
    return t.call(function, x, t.value(node.input[1]), t.optional(node, 2), *options)


def _transposed(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    rank = len(attributes["kernel_shape"])
    pads = attributes["pads"]
    if list(pads[:rank]) != list(pads[rank:]):
        raise NotImplementedError(f"ConvTranspose ({node.name}): padding that differs between the two sides")
    function = getattr(functional, f"conv_transpose{rank}d")
    added = list(attributes.get("output_padding", [0] * rank))
    options = (list(attributes["strides"]), list(pads[:rank]), added, attributes["group"])
    return t.call(function, t.value(node.input[0]), t.value(node.input[1]), t.optional(node, 2), *options)


def _batch_norm(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    x, gamma, beta, mean, variance = (t.value(name) for name in node.input)
    return t.call(functional.batch_norm, x, mean, variance, gamma, beta, False, 0.0, float(attributes["epsilon"]))


def _pool(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    kernel, strides = list(attributes["kernel_shape"]), list(attributes["strides"])
    largest = node.op_type == "MaxPool"
    counted = bool(attributes.get("count_include_pad", 0))
    around = attributes.get("pads", [0] * 2 * len(kernel))
    even = list(around[: len(kernel)]) == list(around[len(kernel) :])
    if not even and not largest and not counted:
        raise NotImplementedError(f"AveragePool ({node.name}): padding that differs and is not counted")
    x, pads = _padded(t, t.value(node.input[0]), around, -np.inf if largest else 0.0)
    function = getattr(functional, f"{'max' if largest else 'avg'}_pool{len(kernel)}d")
    more = {} if largest else {"count_include_pad": counted}
    return t.call(function, x, kernel, strides, pads, ceil_mode=bool(attributes.get("ceil_mode", 0)), **more)


def _padded(t: _Translation, x: Any, pads: Sequence[int], filling: float) -> tuple[Any, list[int]]:
    """The tensor, padded where the two sides differ, and the padding that is left to the operator."""
    begins, ends = list(pads[: len(pads) // 2]), list(pads[len(pads) // 2 :])
    if begins == ends:
        return x, begins
    around = [width for pair in reversed(list(zip(begins, ends, strict=True))) for width in pair]
    return t.call(functional.pad, x, around, "constant", filling), [0] * len(begins)


def _global_average(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    infos = (*t.proto.value_info, *t.proto.input)
    rank = next(len(value.type.tensor_type.shape.dim) for value in infos if value.name == node.input[0])
    return t.call(torch.mean, t.value(node.input[0]), list(range(2, rank)), True)


def _gemm(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    if attributes.get("transA") or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        raise NotImplementedError(f"Gemm ({node.name}): transA, alpha or beta")
    x, weight, bias = (t.value(name) for name in node.input)
    if attributes.get("transB"):
        return t.call(functional.linear, x, weight, bias)
    return t.call(torch.addmm, bias, x, weight)


def _binary(function: Callable[..., Any]) -> Any:
    def translate(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
        return t.call(function, *(t.operand(name) for name in node.input))

    return translate


def _unary(function: Callable[..., Any]) -> Any:
    def translate(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
        return t.call(function, t.value(node.input[0]))

    return translate


def _pad(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    pads = t.integers(node, 1)
    filling = float(t.operand(node.input[2])) if len(node.input) > 2 else 0.0
    pairs = list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True))
    while pairs and pairs[0] == (0, 0):
        pairs.pop(0)
    around = [width for pair in reversed(pairs) for width in pair]
    return t.call(functional.pad, t.value(node.input[0]), around, "constant", filling)


def _slice(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    starts, ends, axes = (t.integers(node, position) for position in (1, 2, 3))
    steps = t.integers(node, 4) if len(node.input) > 4 else [1] * len(axes)
    where: list[Any] = [slice(None)] * (max(axes) + 1)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[axis] = slice(start, end, step)
    return t.call(operator.getitem, t.value(node.input[0]), tuple(where))


def _gather(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    """Rows of a table, or one index of an axis; of a known table by known indices, the rows themselves."""
    axis = int(attributes.get("axis", 0))
    table, places = (t.known.get(name) for name in node.input)
    if table is not None and places is not None:
        return np.take(table, places, axis)
    if places is not None and places.ndim == 0:
        return t.call(torch.select, t.value(node.input[0]), axis, int(places))
    if axis != 0 or table is None:
        raise NotImplementedError(f"Gather ({node.name}): along axis {axis} of a tensor that is computed")
    return t.call(functional.embedding, t.value(node.input[1]), t.value(node.input[0]))


def _cast(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    return t.graph.call_method("to", (t.value(node.input[0]), t.element_type(attributes["to"])))


def _clip(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    return t.call(torch.clamp, t.value(node.input[0]), *(t.operand(name) for name in node.input[1:]))


def _split(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    return t.call(torch.split, t.value(node.input[0]), t.integers(node, 1), int(attributes.get("axis", 0)))


def _where(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    return t.call(torch.where, *(t.value(name) for name in node.input))


def _unsqueeze(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    result = t.value(node.input[0])
    for axis in sorted(t.integers(node, 1)):
        result = t.call(torch.unsqueeze, result, axis)
    return result


def _layer_norm(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    if attributes.get("axis", -1) != -1:
        raise NotImplementedError(f"LayerNormalization ({node.name}): over more than the last axis")
    x, scale, shift = (t.value(name) for name in node.input)
    width = list(t.known[node.input[1]].shape)
    return t.call(functional.layer_norm, x, width, scale, shift, float(attributes["epsilon"]))


def _attention(t: _Translation, node: NodeProto, attributes: Attributes) -> Any:
    query, key, value, bias = (t.value(name) for name in node.input)
    key = t.call(torch.transpose, key, -1, -2)
    scale = float(attributes["scale"])
    return t.call(functional.scaled_dot_product_attention, query, key, value, attn_mask=bias, scale=scale)


_TRANSLATIONS: Mapping[str, Callable[[_Translation, NodeProto, Attributes], Any]] = MappingProxyType(
    {
        "Conv": _convolution,
        "ConvTranspose": _transposed,
        "BatchNormalization": _batch_norm,
        "MaxPool": _pool,
        "AveragePool": _pool,
        "GlobalAveragePool": _global_average,
        "Gemm": _gemm,
        "MatMul": _binary(torch.matmul),
        "Add": _binary(operator.add),
        "Sub": _binary(operator.sub),
        "Mul": _binary(operator.mul),
        "Div": _binary(operator.truediv),
        "Pow": _binary(operator.pow),
        "Clip": _clip,
        "Split": _split,
        "Where": _where,
        "Relu": _unary(functional.relu),
        "Tanh": _unary(torch.tanh),
        "Sigmoid": _unary(torch.sigmoid),
        "Erf": _unary(torch.erf),
        "Pad": _pad,
        "Slice": _slice,
        "Gather": _gather,
        "Cast": _cast,
        "Unsqueeze": _unsqueeze,
        "LayerNormalization": _layer_norm,
        "Softmax": lambda t, node, a: t.call(functional.softmax, t.value(node.input[0]), int(a.get("axis", -1))),
        "Concat": lambda t, node, a: t.call(torch.cat, [t.value(name) for name in node.input], int(a["axis"])),
        "Flatten": lambda t, node, a: t.call(torch.flatten, t.value(node.input[0]), int(a.get("axis", 1))),
        "Reshape": lambda t, node, a: t.call(torch.reshape, t.value(node.input[0]), t.integers(node, 1)),
        "Expand": lambda t, node, a: t.call(torch.broadcast_to, t.value(node.input[0]), t.integers(node, 1)),
        "Transpose": lambda t, node, a: t.call(torch.permute, t.value(node.input[0]), list(a["perm"])),
        LINEAR: lambda t, node, a: t.call(functional.linear, *(t.value(name) for name in node.input)),
        GELU: _unary(functional.gelu),
        ATTENTION: _attention,
    }
)
