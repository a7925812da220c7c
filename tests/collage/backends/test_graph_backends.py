"""The graph-style backends: availability, what they take and refuse, and their way into one compiled module."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from relax_cases import Spec, module_of, random_inputs, run_tvm
from tvm import relax

from collage.backends.base import Backend
from collage.backends.onnx.export import export_onnx, unsupported_reason
from collage.backends.onnx.export import graph as onnx_graph
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend, unsupported_by_openvino
from collage.errors import CodegenError
from collage.graph.from_relax import read_graph

op, nn = relax.op, relax.op.nn
X: Spec = ((2, 4, 6, 6), "float32")


@pytest.fixture(params=[OpenVINOBackend, ONNXRuntimeBackend])
def backend(request: pytest.FixtureRequest) -> Backend:
    made: Backend = request.param()
    return made


def call_of(build: Any, *specs: Spec) -> Any:
    """The last call of a module, normalised."""
    module = relax.transform.Normalize()(module_of(build, *specs))
    return module["main"].body.blocks[-1].bindings[-1].value


def weight(*shape: int) -> Any:
    return relax.const(np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32))


def test_is_available_with_a_version(backend: Backend) -> None:
    assert backend.availability().available
    assert backend.version()[0].isdigit()
    assert backend.style == "graph"


def test_says_how_to_get_what_is_missing(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collage.runtime.engine.find_spec", lambda name: None)
    availability = backend.availability()
    assert not availability.available
    assert f"pip install collage-tvm[{backend.name}]" in availability.reason


def test_the_rule_finds_the_whole_of_a_supported_network(backend: Backend) -> None:
    module = module_of(lambda x: nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), 1, 1)), X)
    graph = read_graph(relax.transform.Normalize()(module))
    found = backend.rule().all_candidates(graph, _spec(backend))
    assert graph.coverable in [candidate.sub_graph.inside for candidate in found]


def _spec(backend: Backend) -> Any:
    from collage.rules.base import PartitionSpec

    return PartitionSpec(backend.rule(), backend.name)


REFUSED: dict[str, tuple[Any, tuple[Spec, ...], str]] = {
    "channels last": (
        lambda x: nn.conv2d(x, weight(4, 3, 3, 4), data_layout="NHWC", kernel_layout="OHWI"),
        (((2, 6, 6, 4), "float32"),),
        "layout NHWC",
    ),
    "mixed precision": (lambda x: nn.conv2d(x, weight(4, 4, 3, 3), out_dtype="float16"), (X,), "dtype float16"),
    "half precision": (nn.relu, (((2, 3), "float16"),), "dtype float16"),
    "double precision": (nn.relu, (((2, 3), "float64"),), "dtype float64"),
    "training": (
        lambda x: nn.batch_norm(x, weight(4), weight(4), weight(4), weight(4), 1, training=True),
        (X,),
        "training mode",
    ),
    "uneven windows": (lambda x: nn.adaptive_avg_pool2d(x, 4), (X,), "windows of unequal size"),
    "circular padding": (lambda x: nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "circular"), (X,), "padding mode circular"),
    "fractional clip": (lambda x: op.clip(x, 0.5, 2), (((2,), "int32"),), "fractional bounds"),
    "cast to bytes": (lambda x: op.astype(x, "uint8"), (X,), "a cast from float32 to uint8"),
    "normalisation over the channels": (lambda x: nn.layer_norm(x, weight(4), weight(4), 1), (X,), "not the last ones"),
    "empty": (lambda x: op.strided_slice(x, [0], [1], [1]), (X,), "no elements"),
    "no converter": (lambda x: op.index_tensor(x, [relax.const(np.array([0, 1]), "int64")]), (X,), "no converter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_with_its_reason(name: str) -> None:
    build, specs, reason = REFUSED[name]
    call = call_of(build, *specs)
    told = unsupported_reason(call)
    assert told is not None
    assert told.startswith(call.op.name)
    assert reason in told
    assert unsupported_by_openvino(call) == told
    with pytest.raises(CodegenError, match=f"{call.op.name}|parameter x0"):
        export_onnx(relax.transform.Normalize()(module_of(build, *specs))["main"])


def test_dynamic_shapes_are_refused() -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    call = relax.BlockBuilder().normalize(nn.relu(x))
    assert "is dynamic" in str(unsupported_reason(call))


#: On these OpenVINO would be silently wrong; ONNX Runtime is not.
ONLY_OPENVINO: dict[str, tuple[Any, tuple[Spec, ...], str]] = {
    "integer division": (lambda x, y: op.divide(x, y), (((3,), "int32"),) * 2, "in float32"),
    "integer clip": (lambda x: op.clip(x, 0, 5), (((3,), "int32"),), "in float32"),
    "integer sum": (lambda x: op.sum(x, [0]), (((3,), "int32"),), "in float32"),
    "int64 product": (op.multiply, (((3,), "int64"),) * 2, "may overflow"),
    "int64 sum": (op.add, (((3,), "int64"),) * 2, "may overflow"),
    "int64 constant": (
        lambda x: op.maximum(x, relax.const(2**40, "int64")),
        (((3,), "int64"),),
        "a constant is beyond",
    ),
    "float to int64": (lambda x: op.astype(x, "int64"), (X,), "instead of int64"),
    "order of equals": (lambda x: op.argsort(x, 1), (X,), "equal elements"),
    "extrema of infinities": (lambda x: op.max(x, [1]), (X,), "infinite"),
}


@pytest.mark.parametrize("name", ONLY_OPENVINO)
def test_openvino_refuses_what_it_computes_in_another_precision(name: str) -> None:
    build, specs, reason = ONLY_OPENVINO[name]
    call = call_of(build, *specs)
    assert unsupported_reason(call) is None
    assert reason in str(unsupported_by_openvino(call))


def test_an_unused_parameter_is_an_error() -> None:
    module = module_of(lambda x, y: nn.relu(x), X, X)
    with pytest.raises(CodegenError, match="parameter x1 is not used"):
        export_onnx(module["main"])


def test_constants_beyond_two_gibibytes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "MAX_BYTES", 1000)
    module = module_of(lambda x: op.add(x, weight(2, 4, 6, 6)), X)
    with pytest.raises(CodegenError, match="partition_7: its constants take"):
        export_onnx(module["main"], name="partition_7")


def test_a_weight_that_is_used_twice_is_stored_once() -> None:
    shared = weight(300, 300)
    module = module_of(lambda x: op.matmul(op.matmul(x, shared), shared), ((2, 300), "float32"))
    model = export_onnx(relax.transform.Normalize()(module)["main"])
    assert len([t for t in model.graph.initializer if math.prod(t.dims) == 300 * 300]) == 1


def test_inputs_and_outputs_keep_their_order() -> None:
    module = module_of(lambda a, b: (op.subtract(a, b), a, op.negative(b), a), ((2,), "float32"), ((2,), "float32"))
    model = export_onnx(relax.transform.Normalize()(module)["main"])
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["input_0", "input_1"]
    assert len({value.name for value in model.graph.output}) == 4


def test_a_network_runs_inside_one_compiled_module(backend: Backend) -> None:
    """Two partitions of one network, compiled by the backend's code generator and called by TVM's virtual machine."""
    from collage.compile.build import compile_partitioned
    from collage.compile.rewrite import apply
    from collage.graph.candidates import CandidatePartition
    from collage.graph.index_set import IndexSet
    from collage.graph.sub_graph import SubGraph
    from collage.runtime import engines

    def network(x: Any) -> Any:
        y = nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), 1, 1))
        return op.add(nn.max_pool2d(y, 3, 1, padding=1), op.sigmoid(y))

    module = relax.transform.Normalize()(module_of(network, X))
    graph = read_graph(module)
    nodes = list(graph.coverable)
    halves = [CandidatePartition(SubGraph(graph, IndexSet(part)), backend.name) for part in (nodes[:3], nodes[3:])]
    executable = compile_partitioned(apply(module, graph, halves, {backend.name: backend}), [backend], threads=1)
    engines.register()
    vm = relax.VirtualMachine(executable, tvm.cpu())
    inputs = random_inputs([X])
    result = vm["main"](tvm.runtime.tensor(inputs[0]))
    np.testing.assert_allclose(result.numpy(), run_tvm(module, inputs)[0], rtol=1e-4, atol=1e-5)
