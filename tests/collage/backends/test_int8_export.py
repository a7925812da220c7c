"""Products in eight bits in partitions of graph backends: what is written, what it computes, what is refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from relax_cases import Spec, empty_outputs, module_of, random_inputs, run_tvm
from tvm import relax
from tvm.runtime import tensor

from collage import plugins
from collage.accuracy.calibration import calibrated as calibrated_by_runs
from collage.annotations.precision import INT8, UNKNOWN, Range, ranges_of, with_ranges
from collage.backends.base import Backend
from collage.backends.onnx.base import OnnxBackend
from collage.backends.onnx.export import quantisation
from collage.backends.onnx.export.quantisation import int8_weight_steps
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.compile.rewrite import extract, partition_function
from collage.errors import CodegenError, FrontendError
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.artifact import prepare
from collage.measure.reference import ReferenceRun
from collage.measure.workloads import WorkloadFactory
from collage.records.key import key_of
from collage.runtime import engines
from collage.runtime.device_info import describe_device

op, nn = relax.op, relax.op.nn
IMAGE: Spec = ((1, 8, 6, 6), "float32")


def weight(*shape: int, seed: int = 1) -> Any:
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def module(build: Any, *specs: Spec) -> Any:
    return relax.transform.Normalize()(relax.transform.CanonicalizeBindings()(module_of(build, *specs)))


def calibrated(network: Any, inputs: list[np.ndarray], **changed: Range) -> Any:
    """The module with the ranges of its inputs; of what its bindings give, those that are named by variable."""
    main = network["main"]
    names = [binding.var.name for block in main.body.blocks for binding in block.bindings]
    given: list[Range] = [(float(a.min()), float(a.max())) for a in inputs]
    return with_ranges(network, [*given, *(changed.get(name, UNKNOWN) for name in names)])


def labelled(network: Any, backend: Backend, nodes: IndexSet | None = None) -> tuple[Any, CandidatePartition]:
    """The whole network as one candidate with its products in eight bits."""
    graph = read_graph(network)
    inside = backend.int8_nodes(graph, graph.coverable) if nodes is None else nodes
    assert inside
    return graph, CandidatePartition(SubGraph(graph, graph.coverable), backend.name, ((INT8, inside),))


def written(network: Any, nodes: IndexSet | None = None, backend: Backend | None = None) -> tuple[Any, onnx.ModelProto]:
    """The partition's function and its ONNX model."""
    backend = backend or OpenVINOBackend()
    graph, candidate = labelled(network, backend, nodes)
    function = partition_function(graph, candidate, backend, "part").function
    assert isinstance(backend, OnnxBackend)
    model = backend.export(function)
    onnx.checker.check_model(model, full_check=True)
    return function, model


def products_of(network: Any) -> IndexSet:
    """The nodes that are products."""
    graph = read_graph(network)
    return IndexSet(i for i in graph.coverable if graph.nodes[i].op in ("relax.matmul", "relax.nn.conv2d"))


def run(engine: str, network: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    function, model = written(network, backend=plugins.load("backends", engine))
    outputs = empty_outputs(function)
    engines.create(engine, model.SerializeToString(), {"threads": 1})(*map(tensor, inputs), *outputs)
    return [value.numpy() for value in outputs]


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def initializers(model: onnx.ModelProto) -> list[np.ndarray]:
    return [numpy_helper.to_array(value) for value in model.graph.initializer]


def error(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))


PRODUCTS: dict[str, tuple[Any, Spec, tuple[int, ...]]] = {
    "conv1d": (lambda x: nn.conv1d(x, weight(6, 8, 3), padding=1), ((2, 8, 20), "float32"), (6,)),
    "conv2d": (lambda x: nn.conv2d(x, weight(6, 8, 3, 3), padding=1), IMAGE, (6,)),
    "conv3d": (lambda x: nn.conv3d(x, weight(6, 8, 3, 3, 3), padding=1), ((1, 8, 4, 5, 5), "float32"), (6,)),
    "groups": (lambda x: nn.conv2d(x, weight(6, 4, 3, 3), groups=2), IMAGE, (6,)),
    "depthwise": (lambda x: nn.conv2d(x, weight(8, 1, 3, 3), groups=8, padding=1), IMAGE, (8,)),
    "strided": (lambda x: nn.conv2d(x, weight(6, 8, 1, 1), strides=2), IMAGE, (6,)),
    "matmul": (lambda x: op.matmul(x, weight(16, 5)), ((3, 16), "float32"), (5,)),
    "matmul of rows": (lambda x: op.matmul(x, weight(16, 5)), ((2, 3, 4, 16), "float32"), (5,)),
}


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_in_eight_bits_is_near_the_exact_one(name: str, engine: str) -> None:
    build, spec, _ = PRODUCTS[name]
    inputs = random_inputs([spec])
    network = module(build, spec)
    found = error(run(engine, calibrated(network, inputs), inputs)[0], run_tvm(network, inputs)[0])
    assert 1e-4 < found < 0.02  # it is quantised, and right


@pytest.mark.parametrize("name", PRODUCTS)
def test_data_are_quantised_per_tensor_and_weights_per_output_channel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenVINOBackend, "int8_signed", False)  # as on a processor without AMX
    build, spec, channels = PRODUCTS[name]
    inputs = random_inputs([spec])
    _, model = written(calibrated(module(build, spec), inputs))
    assert operators(model)["QuantizeLinear"] == 1 and operators(model)["DequantizeLinear"] == 2
    kinds = Counter((array.dtype.name, array.ndim > 1, array.shape[:1]) for array in initializers(model))
    assert kinds["uint8", False, ()] == 1  # the zero of the data
    (weights,) = [array for array in initializers(model) if array.dtype == np.int8 and array.ndim > 1]
    (scales,) = [a for a in initializers(model) if a.dtype == np.float32 and a.ndim == 1]
    assert np.abs(weights).max() == int8_weight_steps() and scales.shape == channels
    (scale,) = [a for a in initializers(model) if a.dtype == np.float32 and a.ndim == 0]
    assert float(scale) == pytest.approx(float(inputs[0].max() - inputs[0].min()) / 255)


@pytest.mark.parametrize(
    ("arch", "features", "steps"),
    [
        ("x86_64", ("avx2", "avx512_vnni"), 127),
        ("x86_64", ("avx2", "avx_vnni"), 127),
        ("AMD64", ("amx_int8",), 127),
        ("x86_64", ("avx2", "avx512f"), 64),
        ("aarch64", ("asimd",), 127),
    ],
)
def test_weights_have_fewer_steps_where_pairs_are_added_in_16_bits(
    arch: str, features: tuple[str, ...], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest sum of a pair is a number of int16; of products of two data it need not be."""
    device = replace(describe_device("cpu"), arch=arch, features=features)
    monkeypatch.setattr(quantisation, "describe_device", lambda kind: device)
    assert int8_weight_steps() == steps and (steps == 127 or 2 * 255 * steps < 2**15 <= 2 * 255 * (steps + 1))
    _, model = written(module(lambda x: op.matmul(x, weight(16, 5)), ((3, 16), "float32")))
    assert max(np.abs(array).max() for array in initializers(model) if array.dtype == np.int8) == steps
    both = read_graph(module(lambda x, y: op.matmul(x, y), ((3, 16), "float32"), ((16, 5), "float32")))
    assert OpenVINOBackend().takes_int8(both.nodes[both.coverable.first]) == (steps == 127)


def test_products_that_are_not_labelled_stay_as_they_are() -> None:
    network = module(lambda x: nn.conv2d(nn.conv2d(x, weight(8, 8, 1, 1)), weight(4, 8, 1, 1)), IMAGE)
    first = IndexSet([read_graph(network).coverable.first])
    _, model = written(network, first)
    assert operators(model) == {"QuantizeLinear": 1, "DequantizeLinear": 2, "Conv": 2}


def test_readers_of_one_value_share_what_was_quantised() -> None:
    network = module(
        lambda x: op.add(op.matmul(x, weight(8, 8)), op.matmul(x, weight(8, 8, seed=2))), ((4, 8), "float32")
    )
    inputs = random_inputs([((4, 8), "float32")])
    _, model = written(calibrated(network, inputs), products_of(network))
    assert operators(model) == {"QuantizeLinear": 1, "DequantizeLinear": 3, "MatMul": 2, "Add": 1}


def test_weights_that_are_used_twice_are_quantised_once() -> None:
    shared = weight(8, 8)
    network = module(lambda x: op.matmul(nn.relu(op.matmul(x, shared)), shared), ((4, 8), "float32"))
    _, model = written(network)
    assert sum(array.dtype == np.int8 and array.ndim == 2 for array in initializers(model)) == 1


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_what_is_beyond_the_range_is_saturated(engine: str) -> None:
    spec: Spec = ((4, 8), "float32")
    network = module(lambda x: op.matmul(x, weight(8, 8)), spec)
    (inside,) = random_inputs([spec], -1.0, 1.0)
    far = inside.copy()
    far[0, 0], far[1, 1] = 100.0, -100.0
    (found,) = run(engine, calibrated(network, [inside]), [far])
    (expected,) = run_tvm(network, [far.clip(inside.min(), inside.max())])
    assert error(found, expected) < 0.02


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("ends", [(3.0, 3.0), (-3.0, -3.0), (0.0, 5e-9), (0.5, 4.0), (-4.0, -0.5), (0.0, 2e38)])
def test_constant_tiny_one_sided_and_huge_ranges(engine: str, ends: Range) -> None:
    spec: Spec = ((4, 8), "float32")
    network = module(lambda x: op.matmul(x, relax.const(np.eye(8, dtype=np.float32))), spec)
    values = np.linspace(*ends, 32, dtype=np.float32).reshape(4, 8)
    (found,) = run(engine, calibrated(network, [values]), [values])
    step = max(abs(ends[0]), abs(ends[1])) / 255
    assert np.abs(found - values).max() <= 0.51 * step


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_zero_is_exact_whatever_the_range(engine: str) -> None:
    network = module(lambda x: nn.conv2d(x, weight(4, 8, 3, 3), padding=1), IMAGE)
    zeros = np.zeros(IMAGE[0], np.float32)
    for ends in (UNKNOWN, (0.7, 3.3), (-3.3, -0.7), (-0.1, 9.9)):
        (found,) = run(engine, calibrated(network, [np.array(ends)]), [zeros])
        assert not found.any()


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_weights_that_are_all_zero_in_a_channel(engine: str) -> None:
    values = np.random.default_rng(1).uniform(-1, 1, (4, 8, 3, 3)).astype(np.float32)
    values[1], values[2] = 0.0, 1e-6 * values[2]
    network = module(lambda x: nn.conv2d(x, relax.const(values)), IMAGE)
    inputs = random_inputs([IMAGE])
    (found,), (expected,) = run(engine, calibrated(network, inputs), inputs), run_tvm(network, inputs)
    assert not found[0, 1].any()
    assert all(error(found[0, i], expected[0, i]) < 0.02 for i in (0, 2, 3))


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan])
def test_weights_that_are_not_finite_are_not_taken(wrong: float) -> None:
    values = np.ones((4, 8, 1, 1), np.float32)
    values[1, 2] = wrong
    graph = read_graph(module(lambda x: nn.conv2d(x, relax.const(values)), IMAGE))
    backend = OpenVINOBackend()
    assert not backend.takes_int8(graph.nodes[graph.coverable.first])


@pytest.mark.parametrize("ends", [(-math.inf, 1.0), (0.0, math.inf), (math.nan, math.nan)])
def test_data_that_were_not_finite_in_calibration_are_not_quantised(ends: Range) -> None:
    network = with_ranges(module(lambda x: nn.conv2d(x, weight(4, 8, 1, 1)), IMAGE), [ends, UNKNOWN])
    graph, backend = read_graph(network), ONNXRuntimeBackend()
    assert backend.takes_int8(graph.nodes[graph.coverable.first])
    assert not backend.int8_nodes(graph, graph.coverable)
    with pytest.raises(CodegenError, match=r"relax.nn.conv2d.*its data were not finite in calibration"):
        written(network, graph.coverable)


TRANSPOSED: dict[str, tuple[Any, Spec]] = {
    "conv1d": (lambda x: nn.conv1d_transpose(x, weight(8, 6, 4), strides=2), ((2, 8, 20), "float32")),
    "conv2d": (lambda x: nn.conv2d_transpose(x, weight(8, 6, 4, 4), strides=2, padding=1), IMAGE),
    "conv3d": (lambda x: nn.conv3d_transpose(x, weight(8, 6, 3, 3, 3), strides=2), ((1, 8, 4, 5, 5), "float32")),
}


@pytest.mark.parametrize("positive", [False, True], ids=["signed", "positive"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_in_eight_bits_in_openvino(name: str, positive: bool) -> None:
    """Of data without a zero of their own: with one, it computes in float32."""
    build, spec = TRANSPOSED[name]
    inputs = [np.abs(array) if positive else array for array in random_inputs([spec])]
    network = module(build, spec)
    known = calibrated(network, inputs)
    _, model = written(known)
    kinds = [array.dtype.name for array in initializers(model) if array.dtype.kind in "iu" and array.ndim == 0]
    assert kinds == ["uint8" if positive else "int8"]
    assert [array.item() for array in initializers(model) if array.dtype.kind in "iu" and array.ndim == 0] == [0]
    (scales,) = [array for array in initializers(model) if array.dtype == np.float32 and array.ndim == 1]
    assert scales.shape == (6,)
    assert 1e-4 < error(run("openvino", known, inputs)[0], run_tvm(network, inputs)[0]) < 0.02


def test_transposed_convolutions_of_groups_or_elsewhere_stay_in_float32() -> None:
    grouped = module(lambda x: nn.conv2d_transpose(x, weight(8, 3, 4, 4), groups=2), IMAGE)
    plain = module(TRANSPOSED["conv2d"][0], IMAGE)
    for network, backend in ((grouped, OpenVINOBackend()), (plain, ONNXRuntimeBackend())):
        graph = read_graph(network)
        assert not backend.int8_nodes(graph, graph.coverable)


@pytest.mark.parametrize(
    ("build", "specs"),
    [
        (lambda x: op.matmul(weight(4, 8), x), (((8, 4), "float32"),)),
        (lambda x: op.matmul(x, weight(2, 8, 4)), (((2, 4, 8), "float32"),)),
        (lambda x: op.matmul(x, weight(8)), (((4, 8), "float32"),)),
        (lambda x: op.matmul(x, weight(8, 4)), (((8,), "float32"),)),
        (lambda x: op.add(x, weight(4, 8)), (((4, 8), "float32"),)),
        (lambda x: op.matmul(x, relax.const(np.ones((70_000, 1), np.float32))), (((1, 70_000), "float32"),)),
    ],
    ids=["weights first", "batched weights", "a vector", "data of one axis", "no product", "overflow"],
)
def test_what_is_no_product_with_weights_is_not_taken(build: Any, specs: tuple[Spec, ...]) -> None:
    graph = read_graph(module(build, *specs))
    backend = ONNXRuntimeBackend()
    assert not backend.int8_nodes(graph, graph.coverable)
    candidate = CandidatePartition(SubGraph(graph, graph.coverable), backend.name, ((INT8, graph.coverable),))
    with pytest.raises(CodegenError, match="cannot be in eight bits"):
        backend.export(partition_function(graph, candidate, backend, "part").function)


def test_ranges_go_with_a_sub_graph() -> None:
    network = module(lambda x: nn.relu(op.matmul(nn.relu(x), weight(8, 8))), ((4, 8), "float32"))
    before = with_ranges(network, [(-1.0, 2.0), (0.0, 2.0), (-5.0, 6.0), (0.0, 6.0)])
    graph = read_graph(before)
    last = IndexSet(list(graph.coverable)[1:])
    assert ranges_of(extract(before, SubGraph(graph, last))) == [(0.0, 2.0), (-5.0, 6.0), (0.0, 6.0)]
    assert ranges_of(extract(network, SubGraph(read_graph(network), last))) == []


def test_of_a_calibrated_network_only_what_has_a_range_is_taken() -> None:
    """What was always zero, empty or not finite has none."""
    network = module(lambda x: op.matmul(op.matmul(x, weight(8, 8)), weight(8, 8, seed=2)), ((4, 8), "float32"))
    first, last = read_graph(network).coverable
    for ranges, taken in (
        ([UNKNOWN, UNKNOWN, UNKNOWN], [first, last]),
        ([(-1.0, 2.0), UNKNOWN, (-3.0, 3.0)], [first]),
        ([UNKNOWN, (-1.0, 2.0), (-3.0, 3.0)], [last]),
        ([UNKNOWN, UNKNOWN, (-3.0, 3.0)], []),
    ):
        graph = read_graph(with_ranges(network, ranges))
        assert list(OpenVINOBackend().int8_nodes(graph, graph.coverable)) == taken


def test_a_module_that_was_changed_after_calibration_is_refused() -> None:
    with pytest.raises(FrontendError, match="was changed after it was calibrated"):
        read_graph(with_ranges(module(nn.relu, IMAGE), [UNKNOWN]))


def test_what_is_measured_has_the_ranges_and_the_label(tmp_path: Path) -> None:
    """The blob of a candidate is that of the plan, and is its own for other ranges; records differ by label only."""
    network = module(lambda x: nn.relu(op.matmul(nn.relu(x), weight(8, 8))), ((4, 8), "float32"))
    backend = ONNXRuntimeBackend()
    blobs: list[bytes] = []
    for high in (2.0, 3.0):
        known = with_ranges(network, [(-1.0, high), (0.0, high), UNKNOWN, UNKNOWN])
        graph = read_graph(known)
        inside = IndexSet(list(graph.coverable)[1:])
        product = backend.int8_nodes(graph, inside)
        candidate = CandidatePartition(SubGraph(graph, inside), backend.name, ((INT8, product),))
        factory = WorkloadFactory(known, graph, {backend.name: backend}, 1)
        workload = factory.of(candidate)
        artifact = prepare(workload, tmp_path / str(high)).artifact
        assert artifact.tolerance == 0.25
        blobs.append(Path(artifact.blobs[0].path).read_bytes())
        model = onnx.load_model_from_string(blobs[-1])
        assert np.float32(high / 255) in [a for a in initializers(model) if a.ndim == 0]
        plain = factory.of(CandidatePartition(SubGraph(graph, inside), backend.name))
        one, other = (key_of(each, "here", {}) for each in (workload, plain))
        assert one.structure == other.structure and one.digest != other.digest
        assert one.composites == (("int8", (0,)),)
    assert blobs[0] != blobs[1]


def residual(x: Any) -> Any:
    """relu(conv), a convolution with its bias, their sum, relu, and a convolution."""
    shortcut = nn.relu(nn.conv2d(x, weight(8, 8, 1, 1)))
    branch = op.add(nn.conv2d(shortcut, weight(8, 8, 3, 3, seed=2), padding=1), weight(1, 8, 1, 1, seed=3))
    return nn.conv2d(nn.relu(op.add(branch, shortcut)), weight(4, 8, 1, 1, seed=4))


def fully_calibrated(network: Any, inputs: list[np.ndarray]) -> Any:
    graph = read_graph(network)
    return calibrated_by_runs(network, graph, [ReferenceRun(network, graph, 1, inputs=inputs)])


def quantised_summands(network: Any, nodes: IndexSet | None = None, backend: Backend | None = None) -> int:
    """How many operands of sums of two tensors are in eight bits."""
    _, model = written(network, nodes, backend or ONNXRuntimeBackend())
    constants = {tensor.name for tensor in model.graph.initializer}
    bytes_of = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    sums = (node for node in model.graph.node if node.op_type == "Add" and constants.isdisjoint(node.input))
    return sum(operand in bytes_of for node in sums for operand in node.input)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_of_a_sum_in_eight_bits_the_operands_are_quantised(engine: str) -> None:
    """Both. What was not calibrated is as fast."""
    network, inputs = module(residual, IMAGE), random_inputs([IMAGE])
    known, backend = fully_calibrated(network, inputs), plugins.load("backends", engine)
    assert quantised_summands(known, None, backend) == quantised_summands(network, None, backend) == 2
    assert quantised_summands(known, products_of(network), backend) < 2
    assert error(run(engine, known, inputs)[0], run_tvm(network, inputs)[0]) < 0.02


def test_a_sum_of_what_has_no_range_is_not_taken() -> None:
    network, inputs = module(residual, IMAGE), random_inputs([IMAGE])
    known = fully_calibrated(network, inputs)
    variables = [*network["main"].params, *(b.var for block in network["main"].body.blocks for b in block.bindings)]
    (biased,) = [i for i, v in enumerate(variables) if v.same_as(_operand_of_the_sum(network))]
    unknown = with_ranges(network, [UNKNOWN if i == biased else ends for i, ends in enumerate(ranges_of(known))])
    assert quantised_summands(unknown) == 0


def _operand_of_the_sum(network: Any) -> Any:
    """What is added to the shortcut."""
    values = [binding.value for block in network["main"].body.blocks for binding in block.bindings]
    return next(v.args[0] for v in values if len(v.args) == 2 and all(isinstance(a, relax.Var) for a in v.args))


def clipped(x: Any) -> Any:
    """Convolutions with biases, one of three and one of four axes, and clamps; a product of matrices with its bias."""
    first = op.clip(op.add(nn.conv2d(x, weight(8, 8, 1, 1)), weight(8, 1, 1, seed=2)), 0, 6)
    second = nn.relu(op.add(nn.conv2d(first, weight(8, 1, 3, 3, seed=3), groups=8), weight(1, 8, 1, 1, seed=4)))
    rows = op.reshape(nn.relu(nn.conv2d(second, weight(8, 8, 1, 1, seed=5))), (8, 16))
    return op.add(op.matmul(rows, weight(16, 4, seed=6)), weight(4, seed=7))


def test_onnxruntime_recognises_what_is_in_eight_bits(tmp_path: Path) -> None:
    """Convolutions, the sum between them, and the product of matrices."""
    onnxruntime = pytest.importorskip("onnxruntime")
    specs = {"residual": (residual, 3, 1, 0), "clipped": (clipped, 3, 0, 1)}
    for name, (build, convolutions, sums, matrices) in specs.items():
        network, inputs = module(build, IMAGE), random_inputs([IMAGE])
        known = fully_calibrated(network, inputs)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath, options.log_severity_level = str(tmp_path / f"{name}.onnx"), 4
        onnxruntime.InferenceSession(written(known, backend=ONNXRuntimeBackend())[1].SerializeToString(), options)
        found = operators(onnx.load(tmp_path / f"{name}.onnx"))
        assert (found["QLinearConv"], found["QLinearAdd"], found["QGemm"]) == (convolutions, sums, matrices), name
        assert error(run("onnxruntime", known, inputs)[0], run_tvm(network, inputs)[0]) < 0.03


def test_clamps_that_quantisation_does_not_imply_stay() -> None:
    """Where the range is wider than the clamp, or the value has another reader."""
    network, inputs, backend = module(clipped, IMAGE), random_inputs([IMAGE]), ONNXRuntimeBackend()
    known = fully_calibrated(network, inputs)
    assert operators(written(known, backend=backend)[1])["Clip"] == 0
    wider = [(-1.0, 9.0) if ends[0] == 0.0 else ends for ends in ranges_of(known)]
    assert operators(written(with_ranges(network, wider), backend=backend)[1])["Clip"] == 1

    def twice(x: Any) -> Any:
        clamped = nn.relu(x)
        return op.add(nn.conv2d(clamped, weight(8, 8, 1, 1)), clamped)

    network = module(twice, IMAGE)
    known = fully_calibrated(network, inputs)
    assert operators(written(known, products_of(network), backend)[1])["Relu"] == 1
