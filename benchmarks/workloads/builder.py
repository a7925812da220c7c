"""GraphBuilder: writes an ONNX graph node by node, with seeded random weights.

The workloads come from no framework: each network is a few dozen lines over this class. Two builds with one seed give
the same bytes. Weights are drawn with a given standard deviation, so that a network keeps its activations of order one
and a wrong kernel shows in the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

#: The first opset with LayerNormalization, and the IR version released with it: every current tool reads both.
OPSET = 17
IR_VERSION = 8


class GraphBuilder:
    """An ONNX graph under construction. Values are referred to by name; every method that adds one returns its name."""

    def __init__(self, name: str, seed: int = 0) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """A graph input of a static shape."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[int]) -> None:
        """Make `value` a float32 graph output called `name`."""
        for node in self._nodes:
            node.output[:] = [name if out == value else out for out in node.output]
            node.input[:] = [name if inp == value else inp for inp in node.input]
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def normal(self, shape: Sequence[int], std: float, mean: float = 0.0) -> str:
        """A float32 weight drawn from N(mean, std²)."""
        values = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        values *= np.float32(std)
        if mean:
            values += np.float32(mean)
        return self._initializer("weight", values)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> str:
        """A float32 weight drawn from U[low, high)."""
        values = self._rng.random(tuple(shape), dtype=np.float32)
        return self._initializer("weight", values * np.float32(high - low) + np.float32(low))

    def constant(self, values: Any, dtype: type[np.generic] = np.float32) -> str:
        """A small constant; equal constants share one initializer, as in an optimised export."""
        array = np.asarray(values, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer("constant", array)
        return self._constants[key]

    def ints(self, *values: int) -> str:
        """A one-dimensional int64 constant: a shape, axes, pads or split sizes."""
        return self.constant(values, np.int64)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        return self.op_many(op_type, 1, *inputs, **attributes)[0]

    def op_many(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node with `count` outputs."""
        name = f"{op_type}_{len(self._nodes)}"
        outputs = [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op_type, list(inputs), outputs, name=name, **attributes))
        return outputs

    def finish(self) -> ModelProto:
        """The model: inputs, outputs, nodes and weights as added."""
        model = ModelProto(ir_version=IR_VERSION, producer_name="collage-benchmarks")
        model.opset_import.append(helper.make_opsetid("", OPSET))
        model.graph.name = self._name
        model.graph.input.extend(self._inputs)
        model.graph.output.extend(self._outputs)
        model.graph.node.extend(self._nodes)
        model.graph.initializer.extend(self._initializers)
        return model

    def _initializer(self, kind: str, values: NDArray[Any]) -> str:
        name = f"{kind}_{len(self._initializers)}"
        self._initializers.append(
            TensorProto(
                name=name,
                dims=values.shape,
                data_type=helper.np_dtype_to_tensor_dtype(values.dtype),
                raw_data=np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).tobytes(),
            )
        )
        return name
