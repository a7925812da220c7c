"""Small ONNX models, and what every canonical module has to satisfy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from tvm import relax

from collage.frontend import input_specs, load, output_specs

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Shape = Sequence[int | str | None]


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    """A node that is called after its first output."""
    return helper.make_node(operator, inputs, outputs, name=f"n_{outputs[0]}", **attributes)


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, int],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    **options: Any,
) -> ModelProto:
    """A model; inputs are given by element type and shape, outputs by element type."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    options.setdefault("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, ir_version=8, **options)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def batch_norm_weights(channels: int, seed: int = 1) -> dict[str, np.ndarray]:
    """Scale, shift, mean and variance, called s, b, m and v, none of them trivial."""
    rng = np.random.default_rng(seed)
    return {
        "s": rng.uniform(0.5, 2.0, channels).astype("float32"),
        "b": rng.standard_normal(channels).astype("float32"),
        "m": rng.standard_normal(channels).astype("float32"),
        "v": rng.uniform(0.2, 3.0, channels).astype("float32"),
    }


def operators(mod: tvm.IRModule) -> Counter[str]:
    """How often each operator is called, without the prefix `relax.`; tuples and projections by their class."""
    found: Counter[str] = Counter()
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            name = value.op.name.removeprefix("relax.") if isinstance(value, relax.Call) else type(value).__name__
            found[name] += 1
    return found


def assert_canonical(mod: tvm.IRModule) -> None:
    """The promises of the package's docstring that can be read off a module."""
    assert relax.analysis.check_well_formed(mod)
    assert [
        variable.name_hint for variable, function in mod.functions.items() if isinstance(function, relax.Function)
    ] == ["main"]
    function = mod["main"]
    assert len(function.body.blocks) <= 1
    for block in function.body.blocks:
        assert isinstance(block, relax.DataflowBlock)
        for binding in block.bindings:
            assert isinstance(binding, relax.VarBinding)
            assert isinstance(binding.value, (relax.Call, relax.Tuple, relax.TupleGetItem)), binding
            arguments = getattr(binding.value, "args", [])
            assert not any(isinstance(argument, (relax.Call, relax.TupleGetItem)) for argument in arguments), (
                "not in ANF"
            )
            assert not isinstance(binding.value, relax.Call) or any(_depends_on_data(a) for a in arguments), binding
    assert not {"nn.batch_norm", "nn.dropout", "shape_of", "isnan"} & set(operators(mod))
    assert input_specs(mod) is not None and output_specs(mod)  # both raise unless every shape is static


def _depends_on_data(argument: Any) -> bool:
    if isinstance(argument, relax.Tuple):
        return any(_depends_on_data(field) for field in argument.fields)
    return isinstance(argument, relax.Var)


def run(mod: tvm.IRModule, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a canonical module, compiled by TVM as it is."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(inputs[spec.name]) for spec in input_specs(mod)])
    return [result.numpy()] if isinstance(result, tvm.runtime.Tensor) else [tensor.numpy() for tensor in result]


def assert_close(ours: Sequence[np.ndarray], reference: Sequence[np.ndarray], tolerance: float = 1e-4) -> None:
    """The largest difference is at most `tolerance` times the largest value, with a floor for outputs near zero."""
    assert len(ours) == len(reference)
    for mine, other in zip(ours, reference, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        if mine.size:
            gap = np.abs(mine.astype("float64") - other.astype("float64")).max()
            assert gap <= tolerance * max(np.abs(other.astype("float64")).max(), 1e-2)


def check(proto: ModelProto, inputs: Mapping[str, np.ndarray], **shapes: Sequence[int]) -> tvm.IRModule:
    """Load a model; the result is canonical, names what ONNX names, and computes what ONNX Runtime computes."""
    runtime = pytest.importorskip("onnxruntime")
    mod = load(proto, shapes or None)
    assert_canonical(mod)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    reference = session.run(None, dict(inputs))
    assert [spec.name for spec in input_specs(mod)] == [value.name for value in session.get_inputs()]
    assert [spec.name for spec in output_specs(mod)] == [value.name for value in session.get_outputs()]
    assert [(spec.shape, spec.dtype) for spec in output_specs(mod)] == [(a.shape, str(a.dtype)) for a in reference]
    assert_close(run(mod, inputs), reference)
    return mod


def save(proto: ModelProto, path: Any) -> Any:
    onnx.save(proto, path)
    return path
