"""GraphBuilder: writes an ONNX graph node by node, with seeded random weights.

The workloads come from no framework: each network is a few dozen lines over this class. Two builds with one seed give
the same bytes. Weights are drawn with a given standard deviation, so that a network keeps its activations of order one
and a wrong kernel shows in the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

#: The first opset with LayerNormalization, and the IR version released with it: every current tool reads both.
OPSET = 17
IR_VERSION = 8
#: Types that a network's floating-point numbers may have.
FLOATS = ("float32", "float16", "bfloat16")


class GraphBuilder:
    """An ONNX graph under construction. Values are referred to by name; every method that adds one returns its name."""

    def __init__(self, name: str, seed: int = 0, dtype: str = "float32") -> None:
        if dtype not in FLOATS:
            raise ValueError(f"a network's floating-point numbers are {' or '.join(FLOATS)}, not {dtype!r}")
        #: Of all floating-point weights, inputs, activations and outputs, for NumPy and for ONNX.
        self.dtype = np.dtype(dtype)
        self.element_type: int = helper.np_dtype_to_tensor_dtype(self.dtype)
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def input(self, name: str, shape: Sequence[int], element_type: int | None = None) -> str:
        """A graph input of a static shape; of the network's floating-point type when none is given."""
        self._inputs.append(helper.make_tensor_value_info(name, element_type or self.element_type, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[int]) -> None:
        """Make `value` a floating-point graph output called `name`."""
        for node in self._nodes:
            node.output[:] = [name if out == value else out for out in node.output]
            node.input[:] = [name if inp == value else inp for inp in node.input]
        self._outputs.append(helper.make_tensor_value_info(name, self.element_type, list(shape)))

    def normal(self, shape: Sequence[int], std: float, mean: float = 0.0) -> str:
        """A weight drawn from N(mean, std²) in float32, and rounded to the network's type."""
        values = self._rng.standard_normal(tuple(shape), dtype=np.float32)
        values *= np.float32(std)
        if mean:
            values += np.float32(mean)
        return self._initializer("weight", values.astype(self.dtype, copy=False))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> str:
        """A weight drawn from U[low, high) in float32, and rounded to the network's type."""
        values = self._rng.random(tuple(shape), dtype=np.float32)
        values = values * np.float32(high - low) + np.float32(low)
        return self._initializer("weight", values.astype(self.dtype, copy=False))

    def constant(self, values: Any, dtype: type[np.generic] | None = None) -> str:
        """A small constant, floating-point when no dtype is given; equal constants share one initializer, as in an
        optimised export.
        """
        array = np.asarray(values, dtype or self.dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._initializer("constant", array)
        return self._constants[key]

    def lowest(self) -> str:
        """The most negative number of the network's type, as masks have it."""
        return self.constant(ml_dtypes.finfo(self.dtype).min)  # type: ignore[no-untyped-call]

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
