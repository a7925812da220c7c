"""From a network to a model for "cuda", all the way, on the CPU in its place (`cuda_emulation`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from cuda_emulation import Emulation, Products, emulation
from tvm import relax

import collage
from collage import plugins
from collage.backends.cuda.native import TVMCudaBackend
from collage.backends.resolve import resolve_backends
from collage.collect.collection import collect
from collage.compile.build import build, device_of_backends
from collage.errors import BackendUnavailableError, CodegenError
from collage.frontend.values import constant
from collage.measure.protocol import DeviceProtocol, Protocol, candidate_protocol
from collage.records import RecordDatabase
from collage.runtime.device_info import describe_device
from collage.testing.backends import Subject, distinct
from collage.testing.measuring import trials

__all__ = ["emulation"]
pytestmark = pytest.mark.emulation
_RNG = np.random.default_rng(0)
_WEIGHTS = [_RNG.standard_normal((16, 16)).astype("float32") * 0.3 for _ in range(2)]


def network() -> Any:
    """Two products, each with a sum behind it."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for weight in _WEIGHTS:
                product = builder.emit(relax.op.matmul(value, relax.const(weight)))
                value = builder.emit(relax.op.add(product, value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def expected(x: np.ndarray) -> np.ndarray:
    for weight in _WEIGHTS:
        x = x @ weight + x
    return x


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda") / "records.db"


@pytest.fixture(scope="module")
def plan(emulation: Emulation, records: Path) -> collage.Plan:
    return collage.partition(
        network(), [TVMCudaBackend(), Products()], device="cuda", records=records, correction_rounds=0
    )


def test_a_network_is_placed_measured_compiled_exported_and_loaded(
    plan: collage.Plan, emulation: Emulation, tmp_path: Path
) -> None:
    x = _RNG.standard_normal((8, 16)).astype("float32")
    assert plan.device == "cuda" and plan.confirmation is not None
    found = {c.name: c for c in plan.confirmation.contestants}
    assert {"products alone", "tvm-cuda alone"} <= set(found)
    assert all(c.latency.is_finite for c in found.values()), [c.latency.reason for c in found.values()]
    plan.compile().export(tmp_path / "model.so")
    model = collage.runtime.load(tmp_path / "model.so")
    assert model.device == "cuda" and model.metadata["device"] == "cuda"
    assert np.allclose(model(x), expected(x), atol=1e-4)
    assert emulation.bytes_written >= DeviceProtocol().evict_bytes, "cold samples empty the last-level cache"


def test_records_of_the_device_hold_its_fingerprint_and_the_protocol(plan: collage.Plan, records: Path) -> None:
    with RecordDatabase(records) as database:
        candidates = list(database.matching(kind="candidate"))
    assert {record.key.backend for record in candidates} == {"products", "tvm-cuda"}
    for record in candidates:
        protocol = json.loads(record.key.protocol)
        assert record.key.device.startswith("cuda-") and "graphs" in protocol["clock"] and record.cost.is_finite


def test_each_partition_is_timed_inside_the_whole_though_the_whole_is_a_graph(plan: collage.Plan) -> None:
    assert plan.confirmation is not None
    alone = plan.confirmation.of("products alone")
    assert len(alone.partition_seconds) == 4 and min(alone.partition_seconds) > 0
    assert len(alone.launch_seconds) == 4 and min(alone.launch_seconds) > 0


def test_a_saved_plan_comes_back_for_its_device(plan: collage.Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    text = json.loads((tmp_path / "plan.json").read_text())
    assert text["device"] == "cuda"
    made = {"products": Products, "tvm-cuda": TVMCudaBackend}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "load", lambda _kind, name: made[name]())
        back = collage.Plan.load(tmp_path / "plan.json", network())
    assert back.device == "cuda" and back.confirmation == plan.confirmation


@pytest.mark.parametrize("dtype", [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_convolutions_in_half_precision_have_their_channels_last(
    emulation: Emulation, records: Path, tmp_path: Path, dtype: np.dtype[Any]
) -> None:
    weight = _RNG.standard_normal((8, 3, 3, 3)).astype(dtype)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 6, 6), str(dtype)))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.nn.conv2d(x, constant(weight)))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    network = collage.load(builder.get())
    found = collage.partition(network, [TVMCudaBackend()], device="cuda", records=records, correction_rounds=0)
    assert 'data_layout="NHWC"' in found.module.script() and 'data_layout="NCHW"' in network.script()
    found.save(tmp_path / "plan.json")
    again = collage.Plan.load(tmp_path / "plan.json", network)  # of the network as it was loaded
    assert again.partitions == found.partitions
    collected = collect([network], [TVMCudaBackend()], device="cuda", records=records, samples=0)
    assert (collected.known, collected.measured) == (6, 0), "what is collected is what the partitioner asks for"
    image = _RNG.standard_normal((1, 3, 6, 6)).astype(dtype)
    windows = np.lib.stride_tricks.sliding_window_view(image.astype("float32"), (3, 3), (2, 3))
    wanted = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight.astype("float32")), 0)
    assert np.allclose(again.compile()(image).astype("float32"), wanted, atol=1e-2 * np.abs(wanted).max())


def test_calls_between_the_first_and_the_last_become_a_graph(emulation: Emulation) -> None:
    x = _RNG.standard_normal((8, 16)).astype("float32")
    model = built([Products(), TVMCudaBackend()]).load()
    for run in range(3):
        emulation.graphs.clear()
        assert np.allclose(model(x + run), expected(x + run), atol=1e-4)
        assert emulation.graphs, "the calls that depend on no argument are captured"


def test_one_partition_that_cannot_be_captured_keeps_the_plan_out_of_a_graph(emulation: Emulation) -> None:
    class Waiting(Products):
        capturable = False  # type: ignore[assignment]

    x = _RNG.standard_normal((8, 16)).astype("float32")
    model = built([Waiting(), TVMCudaBackend()]).load()
    emulation.graphs.clear()
    assert np.allclose(model(x), expected(x), atol=1e-4) and not emulation.graphs


def test_tensors_on_the_device_stay_there(emulation: Emulation) -> None:
    x = _RNG.standard_normal((8, 16)).astype("float32")
    model = built([TVMCudaBackend()]).load()
    assert isinstance(model(x), np.ndarray)
    result = model(tvm.runtime.tensor(x))
    assert isinstance(result, tvm.runtime.Tensor) and np.allclose(result.numpy(), expected(x), atol=1e-4)
    with pytest.raises(collage.errors.ModelInputError, match="shape"):
        model(tvm.runtime.tensor(x[:4]))


def built(backends: list[Any]) -> Any:
    """The network with every product on the first backend that takes it, and the rest on TVM."""
    from collage.compile.rewrite import apply
    from collage.graph.candidates import HOST
    from collage.graph.from_relax import read_graph
    from collage.rules.base import PartitionSpec

    module = network()
    graph = read_graph(module)
    chosen: list[Any] = []
    covered: set[int] = set()
    for backend in backends:
        for candidate in PartitionSpec(backend.rule(), backend.name).candidates(graph):
            inside = set(candidate.sub_graph.inside)
            single = backend.style == "library" or len(inside) == 1
            if single and candidate.backend != HOST and not inside & covered:
                covered |= inside
                chosen.append(candidate)
    chosen.sort(key=lambda candidate: min(candidate.sub_graph.inside))
    return build(apply(module, graph, chosen, {b.name: b for b in backends}), backends, 2)


def test_the_suite_of_every_backend_tries_candidates_on_the_device(emulation: Emulation, tmp_path: Path) -> None:
    subject = Subject(network())
    for number, backend in enumerate([Products(), TVMCudaBackend()]):
        with trials(tmp_path / str(number), timeout_s=60) as measure:
            found = measure(subject.factory(backend), distinct(backend, subject))
        assert found and all(measurement.valid for measurement in found.values()), found


def test_names_may_leave_the_device_out(emulation: Emulation) -> None:
    assert list(resolve_backends(["tvm"], "cuda")) == ["tvm-cuda"]
    assert list(resolve_backends(["tvm-cuda"], "cuda")) == ["tvm-cuda"]
    assert list(resolve_backends(["tvm"], "cpu")) == ["tvm"]


def test_a_backend_of_another_device_is_refused() -> None:
    with pytest.raises(BackendUnavailableError, match="tvm-cuda runs on cuda, not on cpu"):
        resolve_backends(["tvm-cuda"], "cpu")
    with pytest.raises(BackendUnavailableError, match="openvino runs on cpu, not on cuda"):
        resolve_backends(["openvino"], "cuda")
    with pytest.raises(CodegenError, match="cpu and cuda"):
        device_of_backends([plugins.load("backends", "tvm"), TVMCudaBackend()])


def test_the_protocol_of_the_cpu_is_what_it_was() -> None:
    here = describe_device("cpu")
    assert candidate_protocol(here).as_dict() == Protocol(evict_bytes=here.cache * 5 // 4).as_dict()
    assert "clock" not in Protocol().as_dict() and "clock" in candidate_protocol(replace(here, kind="cuda")).as_dict()
