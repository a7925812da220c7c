"""Graph-style backends of a CUDA device, without one: what they take, what blobs hold, what they say is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from relax_cases import Spec, module_of, random_inputs
from tvm import relax

from benchmarks.workloads import build
from benchmarks.workloads import random_inputs as inputs_of
from collage.backends.base import Backend
from collage.backends.cuda import onnxruntime_cuda as onnxruntime_backend
from collage.backends.cuda import tensorrt as tensorrt_backend
from collage.backends.cuda.onnxruntime_cuda import OnnxRuntimeCudaBackend
from collage.backends.cuda.tensorrt import TensorRTBackend, unsupported_by_tensorrt
from collage.backends.onnx.half_precision import export_any_float, refusal
from collage.errors import CodegenError, CompiledModelError, PluginError
from collage.frontend import load
from collage.frontend.passes.device import for_device
from collage.graph.from_relax import read_graph
from collage.measure.reference import ReferenceRun
from collage.rules.base import PartitionSpec
from collage.runtime.engines import tensorrt as tensorrt_engine

pytestmark = pytest.mark.emulation

op, nn = relax.op, relax.op.nn
HALF: Spec = ((2, 4, 6, 6), "float16")
BACKENDS = (OnnxRuntimeCudaBackend, TensorRTBackend)


def call_of(build_it: Any, *specs: Spec) -> Any:
    """The last call of a module, normalised."""
    module = relax.transform.Normalize()(module_of(build_it, *specs))
    return module["main"].body.blocks[-1].bindings[-1].value


def weight(*shape: int, dtype: str = "float16") -> Any:
    return relax.const(np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype))


def in_onnx_runtime(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {info.name: a for info, a in zip(session.get_inputs(), inputs, strict=True)}))


@pytest.mark.parametrize(("name", "device"), [("tiny_resnet", "cpu"), ("tiny_resnet", "cuda"), ("tiny_bert", "cuda")])
def test_a_half_network_is_exported_in_half_and_means_the_same(name: str, device: str) -> None:
    """Also where its convolutions have their channels last, as on a CUDA device."""
    proto = build(name, dtype="float16")
    module = for_device(load(proto), device)
    graph = read_graph(module)
    assert {graph.nodes[i].op for i in graph.coverable if refusal(graph.nodes[i])} <= {"tuple"}
    inputs = list(inputs_of(proto, seed=1).values())
    exported = export_any_float(module["main"], name)
    onnx.checker.check_model(exported, full_check=True)
    kinds = {tensor.data_type for tensor in exported.graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds and onnx.TensorProto.FLOAT not in kinds
    expected = ReferenceRun(module, read_graph(module), 1, inputs).outputs
    for ours, reference in zip(in_onnx_runtime(exported, inputs), expected, strict=True):
        assert ours.dtype == np.float16
        scale = np.abs(reference.astype("float32")).max()
        assert np.abs(ours.astype("float32") - reference.astype("float32")).max() < 1e-2 * scale


def test_float32_is_exported_as_it_always_was() -> None:
    from collage.backends.onnx.export import export_onnx

    module = module_of(lambda x: nn.relu(nn.conv2d(x, weight(4, 4, 3, 3, dtype="float32"), 1, 1)), (HALF[0], "float32"))
    assert export_any_float(module["main"], "f") == export_onnx(module["main"], name="f")


def test_both_types_in_one_partition_are_refused() -> None:
    module = module_of(lambda x: op.astype(nn.relu(x), "float32"), HALF)
    with pytest.raises(CodegenError, match="float16 and another float together"):
        export_any_float(module["main"], "f")
    for other in ("float32", "bfloat16"):
        refused = refusal(call_of(lambda x, other=other: op.astype(x, other), HALF))
        assert "float16 and another float together" in str(refused)
    assert "bfloat16" in str(refusal(call_of(nn.relu, (HALF[0], "bfloat16"))))


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["tiny_resnet", "tiny_bert"])
def test_the_rule_finds_the_whole_network(make: type[Backend], dtype: str, name: str) -> None:
    """But for what has to do with integers alone."""
    graph = read_graph(load(build(name, dtype=dtype)))
    rule = make().rule()
    found = rule.all_candidates(graph, PartitionSpec(rule, make().name))
    assert max(len(c.sub_graph.inside) for c in found) >= len(graph.coverable) - 1


@pytest.mark.parametrize(
    ("build_it", "specs", "reason"),
    [
        (lambda x: nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), 1, 1)), [HALF], None),
        (lambda x: nn.softmax(x, -1), [HALF], None),
        (lambda x: op.reshape(x, (8, 36)), [((2, 4, 6, 6), "int64")], None),
        (lambda x, y: op.add(x, y), [((4,), "int64"), ((4,), "int64")], "integers"),
        (lambda x: op.cumsum(x, 0), [HALF], "not among the operators"),
        (lambda x: op.astype(x, "uint8"), [((4,), "int32")], "dtype uint8"),
        (lambda x: op.exp(x), [((4,), "float64")], "dtype float64"),
    ],
)
def test_tensorrt_takes_what_its_parser_takes(build_it: Any, specs: list[Spec], reason: str | None) -> None:
    found = unsupported_by_tensorrt(call_of(build_it, *specs))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize("make", BACKENDS)
def test_says_what_is_missing_in_one_line(make: type[Backend], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (onnxruntime_backend, tensorrt_backend):
        monkeypatch.setattr(module, "version", not_installed)
    state = make().availability()
    assert not state.available and "is not installed: `pip install" in state.reason and "\n" not in state.reason


def test_says_when_one_onnxruntime_has_overwritten_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_backend, "version", lambda name: "1.24")
    monkeypatch.setattr(onnxruntime_backend, "provider_is_there", lambda: False)
    assert "overwritten" in OnnxRuntimeCudaBackend().availability().reason


def test_says_when_tensorrt_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_backend, "version", lambda name: "8.6.1")
    monkeypatch.setattr(tensorrt_backend, "find_spec", lambda name: object())
    assert "8.6.1" in TensorRTBackend().availability().reason


@pytest.mark.parametrize("make", BACKENDS)
def test_precision_is_part_of_the_configuration(make: Any) -> None:
    assert make().configuration()["precision" if make is OnnxRuntimeCudaBackend else "tf32"] in ("float32", False)
    assert make().configuration() != make(precision="tf32").configuration()
    assert make(precision="tf32").engine_options(1)["tf32"] and not make().engine_options(1)["tf32"]
    with pytest.raises(PluginError, match="float32 or tf32"):
        make(precision="int4").configuration()


def not_installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


class FakeTensorRT(ModuleType):
    """As much of the API of TensorRT 10 as the engine uses; engines echo what they are given to an ONNX model."""

    __version__ = "10.9.0"

    def __init__(self, works: bool = True) -> None:
        super().__init__("tensorrt")
        self.built, self.calls, self.flags = [], [], []
        context = SimpleNamespace(
            set_tensor_address=lambda name, address: self.calls.append((name, address)),
            execute_async_v3=lambda stream: self.calls.append(("run", stream)) or True,
        )
        self.Logger = type("Logger", (), {"ERROR": 1, "__init__": lambda self, level: None})
        self.NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
        self.MemoryPoolType = SimpleNamespace(WORKSPACE="workspace")
        self.BuilderFlag = SimpleNamespace(TF32="tf32")
        config = SimpleNamespace(
            set_memory_pool_limit=lambda pool, size: self.flags.append((pool, size)),
            set_flag=lambda flag: self.flags.append(("set", flag)),
            clear_flag=lambda flag: self.flags.append(("clear", flag)),
        )
        self.Builder = lambda logger: SimpleNamespace(
            create_network=lambda flags: self.flags.append(("network", flags)) or [],
            create_builder_config=lambda: config,
            build_serialized_network=lambda network, config: b"engine of " + network[0],
        )
        self.OnnxParser = lambda network, logger: SimpleNamespace(
            parse=lambda model: works and (network.append(model), self.built.append(model)) is not None,
            num_errors=1,
            get_error=lambda i: SimpleNamespace(desc=lambda: "no such operator"),
        )
        self.Runtime = lambda logger: SimpleNamespace(
            deserialize_cuda_engine=lambda plan: SimpleNamespace(create_execution_context=lambda: context)
        )


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTensorRT:
    fake = FakeTensorRT()
    monkeypatch.setitem(sys.modules, "tensorrt", fake)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tensorrt_engine, "device_facts", lambda: ["a device", "9.0"])
    monkeypatch.setattr(tensorrt_engine, "ordered_stream", lambda: 77)
    return fake


def test_an_engine_is_built_once_and_runs_on_the_callers_memory(tensorrt: FakeTensorRT) -> None:
    backend = TensorRTBackend()
    module = module_of(lambda x: nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), 1, 1)), HALF)
    function = module["main"].with_attr("global_symbol", "part")
    first = tensorrt_engine.Blob.unpack(backend.engine_blob(function))
    assert (first.engine, len(first.inputs), len(first.outputs)) == (b"", 1, 1)

    run = tensorrt_engine.create(first.pack(), backend.engine_options(1))
    assert tensorrt.built == [first.model]
    assert {("network", 2), ("clear", "tf32"), ("workspace", 1 << 30)} <= set(tensorrt.flags)
    tensors = [tvm.runtime.tensor(array) for array in random_inputs([HALF, HALF])]
    run(*tensors)
    run(*tensors)
    addresses = [(name, t.data_ptr()) for name, t in zip(first.inputs + first.outputs, tensors, strict=True)]
    assert tensorrt.calls == [*addresses, ("run", 77), ("run", 77)], "addresses are bound once"
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda", 0), 5):
        run(*tensors)
    assert tensorrt.calls[-1] == ("run", 5), "of another stream than the default one nothing is known"

    second = tensorrt_engine.Blob.unpack(backend.engine_blob(function))
    assert second.engine == b"engine of " + first.model and second.built_for
    tensorrt_engine.create(first.pack(), backend.engine_options(1))
    tensorrt_engine.create(second.pack(), backend.engine_options(1))
    assert len(tensorrt.built) == 1
    tensorrt_engine.create(second.pack(), TensorRTBackend(precision="tf32").engine_options(1))
    assert len(tensorrt.built) == 2, "another precision is another engine"
    with pytest.raises(CompiledModelError, match="takes 2 tensors, 1"):
        run(tensors[0])


def test_a_model_that_is_refused_says_why(tensorrt: FakeTensorRT, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", FakeTensorRT(works=False))
    blob = tensorrt_engine.Blob(("x",), ("y",), b"model").pack()
    with pytest.raises(CompiledModelError, match="no such operator"):
        tensorrt_engine.create(blob, {"workspace": 1})


@pytest.mark.parametrize("cut", [0, 10, 30])
def test_a_blob_that_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(CompiledModelError, match="blob"):
        tensorrt_engine.Blob.unpack(tensorrt_engine.Blob(("x",), ("y",), b"model", b"engine").pack()[:cut])
