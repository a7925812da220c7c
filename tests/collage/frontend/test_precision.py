"""Networks in half precision: folded in float64 and rounded once, computed for reference in float32, held to a wider
tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from frontend_cases import model, node
from tvm import relax

from benchmarks.workloads import build, random_inputs
from collage.frontend import load
from collage.frontend.passes.precision import dtypes_of, widened, widened_module
from collage.frontend.values import value_of
from collage.graph.from_relax import read_graph
from collage.measure.check import wrong_numbers
from collage.measure.reference import ReferenceRun

HALF = onnx.TensorProto.FLOAT16


def in_onnx_runtime(network: onnx.ModelProto, inputs: dict[str, Any]) -> list[np.ndarray]:
    """Of a float16 network on a processor without such arithmetic: computed in float32, rounded between operators."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(network.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_bert"])
def test_the_reference_of_a_half_network_is_the_network_in_float32(name: str) -> None:
    proto = build(name, batch=2, dtype="float16")
    inputs = random_inputs(proto, seed=1)
    module = load(proto)
    assert {"float16"} == dtypes_of(module["main"]) - {"int64", "bool"}
    run = ReferenceRun(module, read_graph(module), threads=1, inputs=list(inputs.values()))
    assert {array.dtype.name for array in run.outputs} == {"float16"}
    assert wrong_numbers(run.outputs, in_onnx_runtime(proto, inputs), tolerance=1e-4) is None


def test_every_node_has_a_reference_value_of_its_own_type() -> None:
    module = load(build("tiny_resnet", dtype="float16"))
    graph = read_graph(module)
    values = ReferenceRun(module, graph, threads=1).values(list(graph.coverable))
    assert {array.dtype.name for array in values} == {"float16"}
    assert all(np.isfinite(array).all() for array in values)


def test_widening_changes_nothing_but_types() -> None:
    module = load(build("tiny_bert", dtype="float16"))
    wide = widened_module(module)
    relax.analysis.well_formed(wide)
    assert {"float32"} == dtypes_of(wide["main"]) - {"int64", "bool"}
    narrow_bindings, wide_bindings = (m["main"].body.blocks[0].bindings for m in (module, wide))
    assert [b.var.name for b in narrow_bindings] == [b.var.name for b in wide_bindings]
    assert wide["main"].attrs["collage.output_names"] == module["main"].attrs["collage.output_names"]


def test_types_in_attributes_are_widened() -> None:
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType((4, 4), "float16")) for n in "xw")
    with builder.function("main", [x, w]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, w, out_dtype="float16"))
            kept = builder.emit(relax.op.astype(product, "int32"))
            result = builder.emit_output(relax.op.add(relax.op.astype(kept, "float16"), product))
        builder.emit_func_output(result)
    wide = widened(builder.get()["main"])
    assert dtypes_of(wide) == {"float32", "int32"}
    assert str(wide.ret_ty.dtype) == "float32"


@pytest.mark.parametrize("kind", [HALF, onnx.TensorProto.BFLOAT16])
def test_a_norm_in_half_precision_is_folded_with_one_rounding(kind: int) -> None:
    rng, dtype = np.random.default_rng(0), onnx.helper.tensor_dtype_to_np_dtype(kind)
    weight = rng.standard_normal((8, 4, 3, 3)).astype(dtype)
    statistics = {name: rng.uniform(0.5, 1.5, 8).astype(dtype) for name in "sbmv"}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("BatchNormalization", ["t", *"sbmv"], ["y"], epsilon=1e-3)]
    proto = model(nodes, {"x": (kind, (1, 4, 6, 6))}, {"y": kind}, {"w": weight, **statistics})
    module = load(proto)
    folded = [
        value_of(argument)
        for binding in module["main"].body.blocks[0].bindings
        for argument in binding.value.args
        if isinstance(argument, tvm.ir.GenericConst)
    ]
    gamma, beta, mean, variance = (statistics[name].astype("float64") for name in "sbmv")
    scale = gamma / np.sqrt(variance + np.float32(1e-3))
    np.testing.assert_array_equal(folded[0], (weight.astype("float64") * scale.reshape(-1, 1, 1, 1)).astype(dtype))
    np.testing.assert_array_equal(folded[1].reshape(-1), (beta - mean * scale).astype(dtype))


@pytest.mark.parametrize(("dtype", "fine", "off"), [("float32", 5e-5, 2e-4), ("float16", 5e-3, 2e-2)])
def test_the_tolerance_is_that_of_the_type(dtype: str, fine: float, off: float) -> None:
    expected = np.linspace(-1, 1, 101).astype(dtype)
    assert wrong_numbers([(expected * (1 + fine)).astype(dtype)], [expected], tolerance=1e-4) is None
    assert wrong_numbers([(expected * (1 + off)).astype(dtype)], [expected], tolerance=1e-4) is not None


def test_a_mask_in_half_hides_no_error_beside_it() -> None:
    expected = np.array([np.finfo("float16").min, 1.0, 2.0], "float16")
    assert wrong_numbers([expected + np.array([0, 0.1, 0], "float16")], [expected], tolerance=1e-4) is not None
