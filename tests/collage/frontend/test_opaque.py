"""Operators that Relax cannot say are opaque nodes: their types, their structure, what runs them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tvm
from frontend_cases import BOOL, FLOAT, INT64, model, node, normal
from onnx import ModelProto, helper
from opaque_cases import CASES, branch, detector, graph, recurrent
from tvm import relax

from collage.annotations.opaque import function_of, opaque_calls
from collage.backends.onnx.export import export_onnx
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import unsupported_by_openvino
from collage.compile.build import build, build_untouched
from collage.compile.rewrite import apply
from collage.errors import CodegenError, CompiledModelError, UnsupportedOperatorError
from collage.frontend import load, output_specs
from collage.frontend.source import notes_of
from collage.graph.candidates import CandidatePartition
from collage.graph.description import describe_module, structure_hash
from collage.graph.from_relax import read_graph
from collage.graph.kinds import OpKind
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.runtime import engines


def by_onnx_runtime(proto: ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {info.name: array for info, array in zip(session.get_inputs(), inputs, strict=True)})


def by_engine(engine: str, module: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(array) for array in inputs]
    outputs = [tvm.runtime.tensor(np.zeros(spec.shape, spec.dtype)) for spec in output_specs(module)]
    engines.create(engine, export_onnx(module["main"]).SerializeToString(), {"threads": 1})(*tensors, *outputs)
    return [output.numpy() for output in outputs]


def operators(module: tvm.IRModule) -> list[str]:
    return [node.op for node in read_graph(module).nodes if node.op.startswith("onnx.")]


@pytest.mark.parametrize("case", CASES)
def test_the_reference_and_the_engines_give_what_onnx_runtime_gives_on_the_original(case: str) -> None:
    proto = CASES[case]()
    module = load(proto)
    run = ReferenceRun(module, read_graph(module), 1)
    expected = by_onnx_runtime(proto, run.inputs)
    # One step of a quantised result, where sums are rounded in another order.
    step = 0.2 if case.startswith("quantised") else 0.0
    for results in (run.outputs, *(by_engine(engine, module, run.inputs) for engine in ("onnxruntime", "openvino"))):
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 + step)


def test_only_what_relax_cannot_say_is_opaque() -> None:
    module = load(recurrent("LSTM"))
    nodes = read_graph(module).nodes
    assert [node.op for node in nodes if node.is_coverable and node.op != "tuple"] == [
        "relax.nn.relu",
        "onnx.LSTM",
        "tuple_get",
        "tuple_get",
        "relax.tanh",
    ]
    assert next(node for node in nodes if node.op == "onnx.LSTM").op_kind is OpKind.OPAQUE


def test_equal_nodes_have_equal_structure_whatever_they_are_called() -> None:
    first = recurrent("GRU")
    second = ModelProto.FromString(first.SerializeToString())
    for inner in second.graph.node:
        inner.name = f"other_{inner.name}"
        inner.output[:] = [f"{name}_2" if name == "z" else name for name in inner.output]
        inner.input[:] = [f"{name}_2" if name == "z" else name for name in inner.input]
    hashes = {structure_hash(describe_module(load(proto))) for proto in (first, second)}
    assert len(hashes) == 1
    assert structure_hash(describe_module(load(recurrent("GRU", "reverse")))) not in hashes


def test_weights_stay_constants_of_the_graph() -> None:
    call = next(opaque_calls(load(branch())["main"]))
    weights = [operand for operand in call.args[2:] if isinstance(operand, tvm.ir.GenericConst)]
    assert sorted(tuple(map(int, weight.value.shape)) for weight in weights) == [(8,), (8, 8)]
    assert len(function_of(call).SerializeToString()) < 400


def test_large_tensors_inside_a_branch_become_constants_of_the_graph() -> None:
    weight = helper.make_node(
        "Constant", [], ["w"], value=helper.make_tensor("w", FLOAT, [64, 64], normal(64, 64).ravel().tolist())
    )
    result = {"r": (FLOAT, [2, 64])}
    then = graph("then", [weight, node("MatMul", ["x", "w"], ["r"])], {}, result)
    other = graph("else", [node("Neg", ["x"], ["r"])], {}, result)
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        {"x": (FLOAT, [2, 64]), "c": (BOOL, [])},
        {"y": FLOAT},
    )
    module = load(proto)
    call = next(opaque_calls(module["main"]))
    assert len(function_of(call).SerializeToString()) < 400
    run = ReferenceRun(module, read_graph(module), 1, [normal(2, 64), np.array(True)])
    np.testing.assert_allclose(run.outputs[0], by_onnx_runtime(proto, run.inputs)[0], rtol=1e-4, atol=1e-5)


def test_a_use_of_an_operator_that_no_converter_takes() -> None:
    """An attribute that TVM's converter ignores, and an output that it lacks."""
    resize = node("Resize", ["x", "", "s"], ["y"], mode="linear", antialias=1)
    scales = {"s": np.array([1, 1, 0.5, 0.5], "float32")}
    proto = model([resize], {"x": (FLOAT, [1, 1, 8, 8])}, {"y": FLOAT}, scales, 18)
    assert operators(load(proto)) == ["onnx.Resize"]
    pool = node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])
    module = load(model([pool], {"x": (FLOAT, [1, 1, 4, 4])}, {"y": FLOAT, "i": INT64}))
    assert operators(module) == ["onnx.MaxPool"]
    assert [spec.shape for spec in output_specs(module)] == [(1, 1, 3, 3)] * 2


def test_operators_of_onnx_runtime_are_typed_by_it() -> None:
    layer = helper.make_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft", alpha=2.0)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = model([layer], {"x": (FLOAT, [3, 4])}, {"y": FLOAT}, {"w": normal(4, 5)}, opset_imports=opsets)
    module = load(proto)
    assert operators(module) == ["onnx.com.microsoft.FusedMatMul"]
    assert output_specs(module)[0].shape == (3, 5)
    inputs = [normal(3, 4, seed=2)]
    np.testing.assert_allclose(
        by_engine("onnxruntime", module, inputs)[0], by_onnx_runtime(proto, inputs)[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("opset", [7, 14, 22])
def test_whatever_opset_a_node_is_of(opset: int) -> None:
    proto = recurrent("LSTM", given=False)
    proto.opset_import[0].version = opset
    module, inputs = load(proto), [normal(6, 2, 5)]
    assert operators(module) == ["onnx.LSTM"]
    for got, want in zip(by_engine("onnxruntime", module, inputs), by_onnx_runtime(proto, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_openvino_does_not_compile_it_does_not_take() -> None:
    proto = model([node("Det", ["x"], ["y"])], {"x": (FLOAT, [3, 3])}, {"y": FLOAT})
    reason = unsupported_by_openvino(next(opaque_calls(load(proto)["main"])))
    assert reason is not None and "Det" in reason


def test_tvm_takes_no_opaque_node() -> None:
    module = load(recurrent("LSTM"))
    with pytest.raises(CodegenError, match="TVM has no kernel for LSTM"):
        build_untouched(module, 1)


def test_an_opaque_call_is_not_folded_by_tvm() -> None:
    """Whatever depends on constants alone is folded around it."""
    nodes = [
        node("Det", ["w"], ["d"]),
        node("Add", ["a", "a"], ["t"]),
        node("Mul", ["x", "t"], ["u"]),
        node("Mul", ["u", "d"], ["y"]),
    ]
    module = load(model(nodes, {"x": (FLOAT, [3])}, {"y": FLOAT}, {"w": normal(3, 3), "a": normal(3)}))
    assert "relax.add" not in {n.op for n in read_graph(module).nodes}
    assert isinstance(module["main"], relax.Function)


def test_what_depends_on_data_in_its_shape_is_one_node_with_all_that_reads_it() -> None:
    proto = detector()
    module = load(proto)
    assert [
        (node.op, len(function_of(node.expr).node)) for node in read_graph(module).nodes if node.op[:5] == "onnx."
    ] == [("onnx.NonMaxSuppression+", 5)]
    assert [str(spec) for spec in output_specs(module)] == [
        "picked: float32[?, ?, ?]",
        "number: int64[2]",
        "scores: float32[1, 2, 36]",
    ]
    assert any("NonMaxSuppression on" in note for note in notes_of(module))
    run = ReferenceRun(module, read_graph(module), 1)
    for got, want in zip(run.outputs, by_onnx_runtime(proto, run.inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_outputs_whose_shapes_are_known_after_the_call(operator: str) -> None:
    kind = INT64 if operator == "NonZero" else FLOAT
    proto = model([node("Relu", ["x"], ["z"]), node(operator, ["z"], ["y"])], {"x": (FLOAT, [8])}, {"y": kind})
    module = load(proto)
    graph, backend = read_graph(module), ONNXRuntimeBackend()
    whole = CandidatePartition(SubGraph(graph, graph.coverable), backend.name)
    compiled = build(apply(module, graph, [whole], {backend.name: backend}), [backend], 1)
    for seed in range(3):
        data = normal(8, seed=seed)
        np.testing.assert_array_equal(compiled(data), by_onnx_runtime(proto, [data])[0])
    with pytest.raises(CompiledModelError, match="depends on the values"):
        compiled.load().bind()
    assert unsupported_by_openvino(next(opaque_calls(module["main"]))) is not None


def test_a_shape_that_follows_from_an_input_depends_on_data() -> None:
    proto = model([node("Pad", ["x", "p"], ["y"])], {"x": (FLOAT, [3]), "p": (INT64, [2])}, {"y": FLOAT})
    assert [spec.shape for spec in output_specs(load(proto))] == [(-1,)]


@pytest.mark.parametrize("operator", ["SequenceConstruct", "SplitToSequence", "Optional", "StringNormalizer"])
def test_sequences_optional_values_and_strings_are_refused_by_name(operator: str) -> None:
    proto = model([node(operator, ["x"], ["y"])], {"x": (FLOAT, [3])}, {"y": FLOAT})
    with pytest.raises(UnsupportedOperatorError, match=f"{operator} .node 'n_y'"):
        load(proto)


def test_what_has_no_elements_is_a_constant() -> None:
    """TVM's kernels divide by extents."""
    weights = {"a": np.array([0]), "b": np.array([0]), "axis": np.array([1])}
    nodes = [node("Slice", ["x", "a", "b", "axis"], ["e"]), node("Concat", ["x", "e"], ["t"], axis=1)]
    module = load(model([*nodes, node("Relu", ["t"], ["y"])], {"x": (FLOAT, [2, 3])}, {"y": FLOAT}, weights))
    assert [n.op for n in read_graph(module).nodes if n.is_coverable] == ["relax.nn.relu"]


@pytest.mark.parametrize(("operator", "rank"), [("Squeeze", 2), ("Unsqueeze", 4)])
def test_the_rank_follows_from_how_many_axes_there_are(operator: str, rank: int) -> None:
    proto = model([node(operator, ["x", "axes"], ["y"])], {"x": (FLOAT, [1, 2, 1]), "axes": (INT64, [1])}, {"y": FLOAT})
    assert len(output_specs(load(proto))[0].shape) == rank


def test_powers_of_integers() -> None:
    module = load(model([node("Pow", ["x", "x"], ["y"])], {"x": (INT64, [3])}, {"y": INT64}))
    assert operators(module) == ["onnx.Pow"]


def test_what_the_branches_of_an_if_read_has_open_dimensions_in_onnx_runtime() -> None:
    """Else its optimisations infer the shapes of branches that are never taken (silero-vad's second sampling rate)."""
    result = {"r": (FLOAT, [2, 8])}
    then, other = (graph(op, [node(op, ["x"], ["r"])], {}, result) for op in ("Neg", "Abs"))
    nodes = [
        node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Greater", ["s", "limit"], ["q"]),
        node("If", ["q"], ["z"], then_branch=then, else_branch=other),
        node("Tanh", ["z"], ["out"]),
    ]
    proto = model(nodes, {"x": (FLOAT, [2, 8]), "y": (FLOAT, [4])}, {"out": FLOAT}, {"limit": np.array(0.0, "float32")})
    module = load(proto)
    exported = ONNXRuntimeBackend().export(module["main"].with_attr("global_symbol", "main"))
    x, y = ([d.dim_value for d in value.type.tensor_type.shape.dim] for value in exported.graph.input)
    assert x == [0, 0] and y == [4]
    inputs = [normal(2, 8), normal(4)]
    given, found = [tvm.runtime.tensor(a) for a in inputs], tvm.runtime.tensor(np.zeros((2, 8), "float32"))
    engines.create("onnxruntime", exported.SerializeToString(), {"threads": 1})(*given, found)
    np.testing.assert_allclose(found.numpy(), by_onnx_runtime(proto, inputs)[0], rtol=1e-6)


def test_what_reads_an_input_without_elements_is_opaque() -> None:
    """TVM divides by extents; ONNX Runtime says what a sum of nothing is."""
    nodes = [node("Exp", ["x"], ["e"]), node("ReduceSum", ["e"], ["out"], keepdims=0)]
    proto = model(nodes, {"x": (FLOAT, [2, 0])}, {"out": FLOAT}, opset=12)
    module = load(proto, {"x": (2, 0)})
    assert operators(module) == ["onnx.Exp", "onnx.ReduceSum"]
    (found,) = by_engine("onnxruntime", module, [np.zeros((2, 0), "float32")])
    assert found == 0.0
