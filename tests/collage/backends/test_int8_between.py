"""What lies between products in eight bits: what OpenVINO computes there in bytes, and that numbers are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from relax_cases import Spec, module_of, random_inputs, run_tvm
from tvm import relax
from tvm.runtime import tensor

from collage.accuracy.calibration import calibrated
from collage.accuracy.levels import with_sums_between
from collage.annotations.precision import INT8, UNKNOWN, Range, with_ranges
from collage.backends.onnx.export import between
from collage.backends.onnx.onnxruntime import ONNXRuntimeBackend
from collage.backends.onnx.openvino import OpenVINOBackend
from collage.compile.rewrite import partition_function
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.runtime import engines
from collage.runtime.device_info import describe_device

op, nn = relax.op, relax.op.nn
IMAGE: Spec = ((1, 16, 8, 8), "float32")
#: Of results of products, and of what lies between, as OpenVINO calls them.
BYTES = ("u8", "i8")
PRODUCTS = ("Convolution", "Deconvolution", "FullyConnected", "MatMul")

ov = pytest.importorskip("openvino")
pytestmark = pytest.mark.skipif(
    not any("vnni" in feature or "amx" in feature for feature in describe_device("cpu").features),
    reason="no instructions for eight bits",
)


def weight(*shape: int, seed: int = 1) -> Any:
    return relax.const(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


def conv(x: Any, channels: int = 16, inputs: int = 16, seed: int = 1, window: int = 3) -> Any:
    """A convolution with its bias."""
    product = nn.conv2d(x, weight(channels, inputs, window, window, seed=seed), padding=window // 2)
    return op.add(product, weight(1, channels, 1, 1, seed=seed + 1))


def pooled(x: Any) -> Any:
    return conv(nn.max_pool2d(nn.relu(conv(x)), (3, 3), (2, 2), padding=1), seed=3)


def moved(x: Any) -> Any:
    """Transposed and reshaped, on the way from a convolution to a product of matrices."""
    rows = op.reshape(op.permute_dims(nn.relu(conv(x)), (0, 2, 3, 1)), (64, 16))
    return op.matmul(rows, weight(16, 8, seed=3))


def joined(x: Any) -> Any:
    sides = [nn.relu(conv(x)), nn.relu(conv(x, seed=3, window=1))]
    return conv(op.concat(sides, axis=1), inputs=32, seed=5)


def cut(x: Any) -> Any:
    return conv(op.strided_slice(nn.relu(conv(x)), [2, 3], [0, 0], [6, 6]), seed=3)


def residual(x: Any) -> Any:
    """Two blocks: a projection as the shortcut, then what was added as the shortcut."""
    first = nn.relu(conv(x))
    second = nn.relu(op.add(conv(nn.relu(conv(first, seed=3)), seed=5), conv(first, seed=7, window=1)))
    third = nn.relu(op.add(conv(nn.relu(conv(second, seed=9)), seed=11), second))
    return conv(third, seed=13)


def averaged(x: Any) -> Any:
    return op.mean(nn.relu(conv(x)), [2, 3])


def averaged_sum(x: Any) -> Any:
    first = nn.relu(conv(x))
    branch = conv(nn.relu(conv(first, seed=3)), seed=5)
    return nn.adaptive_avg_pool2d(nn.relu(op.add(branch, first)), (1, 1))


def decoder(x: Any) -> Any:
    """Transposed convolutions with biases, as a generator has them, the first one of data below zero, too."""

    def up(x: Any, outputs: int, seed: int) -> Any:
        product = nn.conv2d_transpose(x, weight(16, outputs, 4, 4, seed=seed), strides=2, padding=1)
        return op.add(product, weight(1, outputs, 1, 1, seed=seed + 1))

    return op.tanh(op.multiply(up(nn.relu(up(x, 16, 1)), 3, 3), relax.const(np.float32(1e-2))))


def attention(x: Any) -> Any:
    """Two heads over 64 positions."""
    rows = op.permute_dims(op.reshape(x, (1, 16, 64)), (0, 2, 1))

    def heads(seed: int) -> Any:
        return op.permute_dims(op.reshape(op.matmul(rows, weight(16, 16, seed=seed)), (1, 64, 2, 8)), (0, 2, 1, 3))

    scores = op.matmul(heads(1), op.permute_dims(heads(2), (0, 1, 3, 2)))
    values = op.matmul(nn.softmax(op.multiply(scores, relax.const(np.float32(0.1))), -1), heads(3))
    return op.matmul(op.reshape(op.permute_dims(values, (0, 2, 1, 3)), (1, 64, 16)), weight(16, 16, seed=4))


def test_products_of_two_data_are_in_eight_bits_where_openvino_computes_them_so() -> None:
    """All of attention is one layer of its own, which reads bytes."""
    case = Case(attention)
    layers = case.layers()
    assert ("Subgraph", "i8", "u8") in layers or ("Subgraph", "i8", "i8") in layers, layers
    assert [result for kind, _, result in layers if kind == "FullyConnected"] == ["i8", "i8", "i8", "f32"], layers
    found, (expected,) = case.run(), run_tvm(case.module, case.inputs)
    assert 1e-4 < np.linalg.norm(found - expected) / np.linalg.norm(expected) < 0.05


NETWORKS: Mapping[str, Callable[[Any], Any]] = {
    "pooled": pooled,
    "moved": moved,
    "joined": joined,
    "cut": cut,
    "residual": residual,
    "averaged": averaged,
    "averaged_sum": averaged_sum,
    "decoder": decoder,
}


@pytest.mark.parametrize(
    ("ends", "kind"),
    [((-2.0, 2.6), "int8"), ((-1.0, 2.0), "int8"), ((-0.28, 6.0), "uint8"), ((0.0, 6.0), "uint8"), (UNKNOWN, "uint8")],
)
def test_data_that_reach_as_far_below_zero_are_int8_where_that_is_faster(
    ends: Range, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenVINOBackend, "int8_signed", True)  # as on a processor with AMX
    module = relax.transform.Normalize()(relax.transform.CanonicalizeBindings()(module_of(conv, IMAGE)))
    graph = read_graph(with_ranges(module, [ends, *(UNKNOWN for _ in range(2))]))
    for backend, expected in ((OpenVINOBackend(), kind), (ONNXRuntimeBackend(), "uint8")):
        candidate = CandidatePartition(
            SubGraph(graph, graph.coverable), backend.name, ((INT8, backend.int8_nodes(graph, graph.coverable)),)
        )
        model = backend.export(partition_function(graph, candidate, backend, "part").function)
        first = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
        zero = next(value for value in model.graph.initializer if value.name == first.input[2])
        assert numpy_helper.to_array(zero).dtype == expected


class Case:
    """A calibrated network with all that can be in eight bits."""

    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.module = relax.transform.Normalize()(relax.transform.CanonicalizeBindings()(module_of(build, IMAGE)))
        self.inputs = random_inputs([IMAGE])
        graph = read_graph(self.module)
        run = ReferenceRun(self.module, graph, 1, inputs=self.inputs)
        self.graph = read_graph(calibrated(self.module, graph, [run]))

    def blob(self) -> bytes:
        backend, inside = OpenVINOBackend(), self.graph.coverable
        nodes = with_sums_between(self.graph, backend.int8_nodes(self.graph, inside))
        candidate = CandidatePartition(SubGraph(self.graph, inside), backend.name, ((INT8, nodes),))
        return backend.engine_blob(partition_function(self.graph, candidate, backend, "part").function)

    def run(self) -> np.ndarray:
        (expected,) = run_tvm(self.module, self.inputs)
        output = tensor(np.zeros_like(expected))
        engines.create("openvino", self.blob(), {"threads": 1})(*map(tensor, self.inputs), output)
        return np.asarray(output.numpy())

    def layers(self) -> list[tuple[str, str, str]]:
        """Kind, runtime precision and precision of the result of OpenVINO's layers; constants are computed once."""
        core = ov.Core()
        compiled = core.compile_model(core.read_model(self.blob()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = []
        for node in compiled.get_runtime_model().get_ordered_ops():
            facts = {name: value.astype(str) for name, value in node.get_rt_info().items()}
            sources = [value.get_source_output().get_node() for value in node.inputs()]
            if facts["layerType"] != "Output" and any(_kind(source) != "Const" for source in sources):
                found.append((facts["layerType"], facts["runtimePrecision"], facts["outputPrecisions"]))
        return found


def _kind(node: Any) -> str:
    return str(node.get_rt_info()["layerType"].astype(str))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: Case(build) for name, build in NETWORKS.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_chains_of_products_stay_in_eight_bits(name: str, cases: Mapping[str, Case]) -> None:
    """Only the last product's result is float32."""
    layers = cases[name].layers()
    assert sum(result not in BYTES and kind != "Reorder" for kind, _, result in layers) == 1, layers
    products = [precision for kind, precision, _ in layers if kind in PRODUCTS]
    assert products and set(products) <= set(BYTES), layers


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_between_is_as_near_as_the_products(name: str, cases: Mapping[str, Case]) -> None:
    case = cases[name]
    found, (expected,) = case.run(), run_tvm(case.module, case.inputs)
    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["pooled", "moved", "joined", "cut"])
def test_quantising_before_moving_is_quantising_after(
    name: str, cases: Mapping[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cases[name].run()
    monkeypatch.setattr(between, "_MOVING", frozenset())
    np.testing.assert_allclose(before, cases[name].run(), rtol=1e-5, atol=1e-5)
