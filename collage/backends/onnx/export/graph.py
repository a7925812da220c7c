"""GraphBuilder: an ONNX graph under construction: nodes, initializers, and unique value names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from collage.annotations.opaque import renamed
from collage.errors import CodegenError

#: The first opset in which Gelu, reductions with axes as inputs and pooling with dilation are all there.
OPSET = 20
#: The IR version that belongs to it (ONNX 1.15).
IR_VERSION = 9
#: A protobuf message cannot be larger; a little is left for nodes and names.
MAX_BYTES = 2**31 - 2**20

Value = str
Values = tuple[str, ...]


class GraphBuilder:
    """Collects nodes and initializers; constants are copied only by `build`, so that a dry run is cheap."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._constant_names: dict[tuple[Any, ...], str] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._opsets = {"": OPSET}
        self._written: dict[tuple[Any, ...], Value] = {}

    def emit(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """Append a node with one output and return its name. An empty input name is an absent optional input."""
        return self.emit_many(op, inputs, 1, **attributes)[0]

    def emit_many(self, op: str, inputs: Sequence[Value], outputs: int, **attributes: Any) -> Values:
        """Append a node with several outputs and return their names."""
        stem = f"{op}_{len(self._nodes)}"
        names = (stem,) if outputs == 1 else tuple(f"{stem}_{i}" for i in range(outputs))
        self._nodes.append(helper.make_node(op, list(inputs), list(names), name=stem, **attributes))
        return names

    def once(self, key: tuple[Any, ...], write: Callable[[], Value]) -> Value:
        """The name of what `write` appends, which is called once for each key."""
        if key not in self._written:
            self._written[key] = write()
        return self._written[key]

    def splice(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Mapping[str, Value],
        outputs: Sequence[str],
        opsets: Mapping[str, int],
    ) -> Values:
        """Append nodes that are ONNX already, and return the names of some of their values here.

        Parameters
        ----------
        nodes
            Their values have names of their own.
        inputs
            Theirs -> names of the values here that they read.
        outputs
            The values wanted, by their own names.
        opsets
            The operator sets that they are of, by domain; of two versions the newer one is declared.
        """
        stem = f"part_{len(self._nodes)}"
        names = dict(inputs)
        for name in (name for node in nodes for name in node.output):
            names.setdefault(name, f"{stem}_{name}")
        for position, node in enumerate(nodes):
            copy = renamed(node, names, lambda name: f"{stem}_{name}")
            copy.name = f"{stem}_{node.op_type}_{position}"
            self._nodes.append(copy)
        for domain, version in opsets.items():
            self._opsets[domain] = max(version, self._opsets.get(domain, 0))
        return tuple(names[name] for name in outputs)

    def constant(self, value: np.ndarray, key: tuple[Any, ...] | None = None) -> Value:
        """The name of an initializer. Two constants with one `key`, or two small equal ones, share it."""
        if key is None and value.nbytes <= 1024:
            key = (value.dtype.str, value.shape, value.tobytes())
        if key is not None and key in self._constant_names:
            return self._constant_names[key]
        name = f"const_{len(self._constants)}"
        self._constants[name] = value
        if key is not None:
            self._constant_names[key] = name
        return name

    def ints(self, values: Sequence[int]) -> Value:
        """A one-dimensional int64 initializer: a shape, axes, pads."""
        return self.constant(np.asarray(values, dtype=np.int64).reshape(len(values)))

    def input(self, shape: Sequence[int], dtype: str) -> Value:
        """Declare the next graph input and return its name."""
        name = f"input_{len(self._inputs)}"
        self._inputs.append(helper.make_tensor_value_info(name, tensor_dtype(dtype), list(shape)))
        return name

    def output(self, value: Value, shape: Sequence[int | None], dtype: str) -> None:
        """Declare `value` the next graph output; an input, a constant or an earlier output goes through an Identity."""
        taken = {info.name for info in (*self._inputs, *self._outputs)}
        if value in taken or value in self._constants:
            value = self.emit("Identity", value)
        self._outputs.append(helper.make_tensor_value_info(value, tensor_dtype(dtype), list(shape)))

    def build(self) -> onnx.ModelProto:
        """The model.

        Raises
        ------
        CodegenError
            The constants exceed what one protobuf message can hold (2 GiB).
        """
        size = sum(value.nbytes for value in self._constants.values())
        if size > MAX_BYTES:
            raise CodegenError(
                f"{self.name}: its constants take {size / 2**30:.1f} GiB, and an ONNX model in memory holds at most "
                "2 GiB: place this part on the tvm backend, or split it"
            )
        model = onnx.ModelProto(ir_version=IR_VERSION, producer_name="collage")
        graph = model.graph  # in place: a message that is given to another one is copied, weights and all
        graph.name = self.name
        graph.node.extend(self._nodes)
        graph.input.extend(self._inputs)
        graph.output.extend(self._outputs)
        for name, value in self._constants.items():
            tensor = graph.initializer.add()
            tensor.name = name
            tensor.dims.extend(value.shape)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
            tensor.raw_data = value.tobytes()
        model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in self._opsets.items())
        return model


def tensor_dtype(dtype: str) -> int:
    """The ONNX element type of a dtype name such as "float32"."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
