"""The cuDNN engine on host memory: everything is the device's but the library and its frontend (`emulation/cudnn*.h`).

Every case goes through the rewriting, TVM's virtual machine, and one through export and reload, against float64.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, ClassVar

import emulated
import numpy as np
import pytest
import tvm
import tvm_ffi
from attention_cases import ATTENTIONS, Extents, packed
from cudnn_cases import CASES, Case, Weights
from tvm import relax

from collage.backends.cuda.cudnn.backend import CudnnBackend
from collage.compile import build as building
from collage.compile.rewrite import apply
from collage.errors import CompiledModelError
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.rules.base import PartitionSpec
from collage.runtime import blob as blobs
from collage.runtime import engines
from collage.runtime.cuda.cudnn.engine import ENGINE as engine
from collage.testing import fresh

pytestmark = pytest.mark.emulation


class EmulatedCudnn(CudnnBackend):
    """The backend with its engine on the host."""

    device: ClassVar[str] = "cpu"


@pytest.fixture(scope="module", autouse=True)
def _emulation() -> None:
    emulated.load("cudnn", ("-DCOLLAGE_CUDNN_BUILDERS=2u",))
    engines.register()


def whole(case: Case, backend: CudnnBackend, dtype: str) -> tuple[Any, DataflowGraph, CandidatePartition]:
    """A case as one partition."""
    module = case.module(dtype)
    graph = read_graph(module)
    found = backend.rule().all_candidates(graph, PartitionSpec(backend.rule(), backend.name))
    chosen = [c for c in found if c.sub_graph.inside == graph.coverable]
    assert [label for c in chosen for label, _ in c.composites] == [case.label]
    return module, graph, chosen[0]


def partitioned(case: Case, dtype: str = "float32") -> tuple[Any, EmulatedCudnn]:
    backend = EmulatedCudnn()
    module, graph, candidate = whole(case, backend, dtype)
    return apply(module, graph, [candidate], {backend.name: backend}), backend


def result_of(case: Case, dtype: str) -> np.ndarray:
    module, backend = partitioned(case, dtype)
    executable = building.compile_partitioned(module, [backend], threads=1)
    vm = relax.VirtualMachine(executable, tvm.cpu())
    result: np.ndarray = vm["main"](*(tvm.runtime.tensor(value.astype(dtype)) for value in case.inputs())).numpy()
    return result


@pytest.mark.parametrize("name", CASES)
def test_gives_the_numbers_of_relax(name: str) -> None:
    case = CASES[name]
    np.testing.assert_allclose(result_of(case, "float32"), case.reference(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["residual block", "channels last", "gated", "maximum", "softmax of rows", "layer norm"]
)
def test_gives_the_numbers_of_relax_in_half_precision(name: str) -> None:
    case = CASES[name]
    reference = case.reference()
    assert np.abs(result_of(case, "float16") - reference).max() < 4e-3 * np.abs(reference).max()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_gives_the_numbers_of_numpy(name: str) -> None:
    case = ATTENTIONS[name](Extents())
    np.testing.assert_allclose(result_of(case, "float16"), case.reference(), rtol=0, atol=4e-3)


def test_attention_out_of_one_tensor_copies_nothing() -> None:
    header, _ = blobs.unpack(blob_of(packed(Extents(heads=3, head=16), (4, 0, 9)), "float16"))
    operands = [header["operands"][role] for role in "qkv"]
    assert [(each["arg"], each.get("offset", 0)) for each in operands] == [(0, 64), (0, 0), (0, 144)]


def test_an_exported_model_runs_in_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["residual block"]
    module, backend = partitioned(case)
    monkeypatch.setattr(engines, "object_files", lambda names: [emulated.object_file(name) for name in names])
    building.build(module, [backend], threads=1).export(tmp_path / "model.so")
    np.savez(tmp_path / "in.npz", *case.inputs())
    fresh.run("collage.testing.deployed_process", [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")])
    with np.load(tmp_path / "out.npz") as data:
        np.testing.assert_allclose(data["arr_0"], case.reference(), rtol=1e-5, atol=1e-5)


def blob_of(case: Case, dtype: str = "float32") -> bytes:
    module, backend = partitioned(case, dtype)
    (function,) = (f for _, f in module.functions_items() if f.attrs and "Codegen" in f.attrs)
    return backend.engine_blob(function)


def test_a_choice_is_reported_and_kept_in_the_blob() -> None:
    blob = blob_of(CASES["convolution"])
    chosen = engine.choose(blob, {})
    kept = blobs.with_choice(blob, chosen)
    assert blobs.unpack(kept)[0]["choice"] == chosen
    np.testing.assert_array_equal(blobs.unpack(kept)[1]["w"], blobs.unpack(blob)[1]["w"])
    case = CASES["convolution"]
    output = tvm.runtime.tensor(np.zeros(case.reference().shape, np.float32))
    engine.create(kept, {"threads": 1})(*(tvm.runtime.tensor(v) for v in case.inputs()), output)
    np.testing.assert_allclose(output.numpy(), case.reference(), rtol=1e-5, atol=1e-5)


def convolution(length: int, after: str) -> Case:
    """One that no other test has, so that its plans are not there yet."""

    def body(emit: Any, w: Weights, x: Any) -> Any:
        value = emit(relax.op.nn.conv1d(x, w(6, 4, 3)))
        return relax.op.nn.silu(value) if after == "silu" else relax.op.nn.relu(value)

    return Case(body, ((2, 4, length),), "cudnn.conv_act")


def built() -> int:
    return int(tvm_ffi.get_global_func("collage.emulation.cudnn.built")())


def test_a_fused_kernel_is_timed_against_a_convolution_and_its_epilogue_apart() -> None:
    before = built()
    relu = engine.choose(blob_of(convolution(21, "relu")), {})
    # Of six plans each; but of the four fused ones that are compiled when they are built, three.
    assert built() - before == 5 + 6 + 6
    assert relu["form"] in ("fused", "apart") and "eng0" not in relu["plans"]
    silu = engine.choose(blob_of(convolution(22, "silu")), {})
    assert silu["form"] == "apart" and len(silu["plans"]) == 2  # in planes of channels nothing else is there


def test_no_plan_is_built_twice() -> None:
    blob = blob_of(convolution(23, "relu"))
    chosen = engine.choose(blob, {})
    before = built()
    engine.create(blob, {})
    engine.create(blobs.with_choice(blob, chosen), {})
    assert engine.choose(blobs.with_choice(blob, chosen), {}) == chosen
    assert built() == before


def test_a_blob_runs_the_plans_that_it_names_whatever_others_run() -> None:
    blob = blob_of(CASES["convolution"])
    chosen = engine.choose(blob, {})
    (plan,) = chosen["plans"]
    other = {**chosen, "plans": ["eng2" if plan != "eng2" else "eng3"]}
    assert engine.choose(blobs.with_choice(blob, other), {})["plans"] == other["plans"]
    assert engine.choose(blob, {})["plans"] == other["plans"]  # one that names none takes what is there


def test_building_stops_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = blob_of(Case(lambda emit, w, x: relax.op.nn.conv1d(x, w(6, 4, 3)), ((2, 4, 24),), "cudnn.conv"))
    monkeypatch.setenv("COLLAGE_EMULATED_BUILD_SECONDS", "1.6")
    before, start = built(), time.perf_counter()
    engine.choose(blob, {})
    assert built() - before == 4 and time.perf_counter() - start < 6


def test_plans_are_built_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the convolution with its epilogue, of the convolution and of the epilogue, each by two threads."""
    monkeypatch.setenv("COLLAGE_EMULATED_BUILD_SECONDS", "0.1")
    chosen = engine.choose(blob_of(convolution(26, "relu")), {})
    assert tvm_ffi.get_global_func("collage.emulation.cudnn.most_at_once")() == 6
    assert chosen["timed"] in (5, 12) and "eng0" not in chosen["plans"]


def test_a_partition_that_no_plan_runs_says_why_in_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLAGE_EMULATED_REFUSES", "1")
    with pytest.raises(CompiledModelError) as refusal:
        engine.choose(blob_of(convolution(25, "silu")), {})
    last = str(refusal.value).splitlines()[-1]
    assert re.search(r"no plan for this conv; fused: No valid engine.*; apart: .*CUDNN_STATUS_EXECUTION_FAILED", last)


def test_what_the_engine_does_not_know_is_an_error_that_says_so() -> None:
    header, tensors = blobs.unpack(blob_of(CASES["convolution"]))
    del header["tensors"]
    with pytest.raises(CompiledModelError, match="no operation fold"):
        engine.create(blobs.pack({**header, "op": "fold"}, tensors), {})
    with pytest.raises(CompiledModelError, match="no tensor w"):
        engine.create(blobs.pack(header, {}), {})
    with pytest.raises(CompiledModelError, match="not the blob"):
        engine.create(b"something else", {})


def test_a_call_with_too_few_tensors_is_an_error() -> None:
    run = engine.create(blob_of(CASES["convolution"]), {})
    with pytest.raises(ValueError, match="takes 2 tensors, 1 were given"):
        run(tvm.runtime.tensor(np.zeros((2, 4, 9, 7), np.float32)))


def test_memory_that_cudnn_cannot_take_is_an_error() -> None:
    run = engine.create(blob_of(CASES["convolution"]), {})
    flat = np.zeros(2 * 4 * 9 * 7 + 64, np.float32)
    shift = (-flat.ctypes.data % 64) // 4 + 1
    odd = tvm_ffi.from_dlpack(flat[shift : shift + 504].reshape(2, 4, 9, 7))  # TVM itself takes no such memory
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        run(odd, tvm.runtime.tensor(np.zeros((2, 6, 7, 5), np.float32)))
