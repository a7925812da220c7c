"""The cuDNN engine on host memory: blob, reading and binding of operands are the device's, the library is plain loops.

Every case goes through the rewriting, TVM's virtual machine, and one through export and reload, against float64.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import emulated
import numpy as np
import pytest
import tvm
import tvm_ffi
from cudnn_cases import CASES, Case
from tvm import relax

from collage import build as building
from collage.backends.cuda.cudnn import CudnnBackend
from collage.candidates import CandidatePartition, PartitionSpec
from collage.errors import CompiledModelError
from collage.graph.dataflow_graph import DataflowGraph
from collage.rewrite import apply
from collage.runtime import blob as blobs
from collage.runtime import engines
from collage.runtime.cuda import choices
from collage.runtime.engines import cudnn as engine
from collage.testing import fresh

pytestmark = pytest.mark.emulation


class EmulatedCudnn(CudnnBackend):
    """The backend with its engine on the host."""

    device: ClassVar[str] = "cpu"


@pytest.fixture(scope="module", autouse=True)
def _emulation() -> None:
    emulated.load("cudnn")
    engines.register()


def whole(case: Case, backend: CudnnBackend) -> tuple[Any, DataflowGraph, CandidatePartition]:
    """A case as one partition."""
    module = case.module()
    graph = DataflowGraph.from_module(module)
    found = backend.rule().all_candidates(graph, PartitionSpec(backend.rule(), backend.name))
    chosen = [c for c in found if c.sub_graph.inside == graph.coverable]
    assert [label for c in chosen for label, _ in c.composites] == [case.label]
    return module, graph, chosen[0]


def partitioned(case: Case) -> tuple[Any, EmulatedCudnn]:
    backend = EmulatedCudnn()
    module, graph, candidate = whole(case, backend)
    return apply(module, graph, [candidate], {backend.name: backend}), backend


@pytest.mark.parametrize("name", CASES)
def test_gives_the_numbers_of_relax(name: str) -> None:
    case = CASES[name]
    module, backend = partitioned(case)
    executable = building.compile_partitioned(module, [backend], threads=1)
    vm = relax.VirtualMachine(executable, tvm.cpu())
    result = vm["main"](*(tvm.runtime.tensor(value) for value in case.inputs()))
    np.testing.assert_allclose(result.numpy(), case.reference(), rtol=1e-5, atol=1e-5)


def test_an_exported_model_runs_in_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["residual block"]
    module, backend = partitioned(case)
    monkeypatch.setattr(building, "engine_objects", lambda names: [emulated.object_file(name) for name in names])
    building.build(module, [backend], threads=1).export(tmp_path / "model.so")
    np.savez(tmp_path / "in.npz", *case.inputs())
    fresh.run("collage.testing.deployed_process", [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")])
    with np.load(tmp_path / "out.npz") as data:
        np.testing.assert_allclose(data["arr_0"], case.reference(), rtol=1e-5, atol=1e-5)


def blob_of(case: Case) -> bytes:
    module, backend = partitioned(case)
    (function,) = (f for _, f in module.functions_items() if f.attrs and "Codegen" in f.attrs)
    return backend.engine_blob(function)


def test_a_choice_is_reported_and_kept_in_the_blob() -> None:
    blob = blob_of(CASES["convolution"])
    chosen = choices.choose("cudnn", blob, {})
    kept = blobs.with_choice(blob, chosen)
    assert blobs.unpack(kept)[0]["choice"] == chosen
    np.testing.assert_array_equal(blobs.unpack(kept)[1]["w"], blobs.unpack(blob)[1]["w"])
    case = CASES["convolution"]
    output = tvm.runtime.tensor(np.zeros(case.reference().shape, np.float32))
    engine.create(kept, {"threads": 1})(*(tvm.runtime.tensor(v) for v in case.inputs()), output)
    np.testing.assert_allclose(output.numpy(), case.reference(), rtol=1e-5, atol=1e-5)


def test_what_the_engine_does_not_know_is_an_error_that_says_so() -> None:
    header, tensors = blobs.unpack(blob_of(CASES["convolution"]))
    del header["tensors"]
    run = engine.create(blobs.pack({**header, "op": "fold"}, tensors), {})
    memory = [tvm.runtime.tensor(np.zeros(shape, np.float32)) for shape in ((2, 4, 9, 7), (2, 6, 7, 5))]
    with pytest.raises(ValueError, match="fold"):
        run(*memory)
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
