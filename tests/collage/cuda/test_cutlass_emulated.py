"""The CUTLASS engine on host memory, against float64: each network through rewriting and TVM's virtual machine, one
through export and reload, in all dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import emulated
import numpy as np
import pytest
import tvm
from cutlass_cases import CASES
from cutlass_emulated import EmulatedCutlass
from product_cases import assert_close, codegen_function, whole
from tvm import relax

from collage.backends.cuda.cutlass.kernels import Kernel
from collage.compile import build as building
from collage.errors import CompiledModelError
from collage.runtime import engines
from collage.runtime.cuda import choices
from collage.runtime.cuda.cutlass import libraries as cutlass_libraries
from collage.runtime.cuda.cutlass.engine import ENGINE as engine
from collage.runtime.cuda.cutlass.libraries import KernelLibrary
from collage.testing import fresh

pytestmark = pytest.mark.emulation

K = 48  # products that are added at most


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> EmulatedCutlass:
    emulated.load("cutlass")
    engines.register()
    return EmulatedCutlass(arch="sm_80", cache=tmp_path_factory.mktemp("cutlass"))


def blob_of(name: str, backend: EmulatedCutlass, dtype: str = "float16") -> bytes:
    case = CASES[name]
    return backend.engine_blob(codegen_function(whole(case.module(dtype), backend, case.label)))


def expected(name: str, dtype: str) -> np.ndarray:
    """In float64, from the dtype's inputs."""
    return np.asarray(CASES[name].reference(*(a.astype(np.float64) for a in CASES[name].arrays(dtype))))


def tensors(name: str, dtype: str) -> list[Any]:
    return [tvm.runtime.tensor(a) for a in CASES[name].arrays(dtype)]


@pytest.mark.parametrize("name", CASES)
def test_gives_the_numbers_of_numpy(name: str, backend: EmulatedCutlass) -> None:
    case = CASES[name]
    module = whole(case.module("float32"), backend, case.label)
    vm = relax.VirtualMachine(building.compile_partitioned(module, [backend], threads=1), tvm.cpu())
    for _ in range(2):
        assert_close(vm["main"](*tensors(name, "float32")).numpy(), expected(name, "float32"), "float32", K)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["batch", "one matrix for all of a batch"])
def test_half_precision(name: str, dtype: str, backend: EmulatedCutlass) -> None:
    """Networks without weights of their own: inputs are exact in the dtype."""
    run = engine.create(blob_of(name, backend, dtype), backend.engine_options(threads=1))
    output = tvm.runtime.tensor(np.zeros(expected(name, dtype).shape, CASES[name].arrays(dtype)[0].dtype))
    run(*tensors(name, dtype), output)
    assert_close(output.numpy(), expected(name, dtype), dtype, K)


def test_partitions_in_one_process_keep_their_own_kernels(backend: EmulatedCutlass) -> None:
    """The system's loader tells libraries apart by name, and files in memory are named by number."""
    names = ["batch", "one matrix for all of a batch"]
    runs = [engine.create(blob_of(name, backend, "float32"), backend.engine_options(threads=1)) for name in names]
    halves = [engine.create(blob_of(name, backend, "float16"), backend.engine_options(threads=1)) for name in names]
    for dtype, functions in (("float32", runs), ("float16", halves)):
        for name, run in zip(names, functions, strict=True):
            output = tvm.runtime.tensor(np.zeros(expected(name, dtype).shape, dtype))
            run(*tensors(name, dtype), output)
            assert_close(output.numpy(), expected(name, dtype), dtype, K)


def test_an_exported_model_runs_in_a_fresh_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: EmulatedCutlass
) -> None:
    case = CASES["bottleneck"]
    monkeypatch.setattr(engines, "object_files", lambda names: [emulated.object_file(name) for name in names])
    module = whole(case.module("float32"), backend, case.label)
    building.build(module, [backend], threads=1).export(tmp_path / "model.so")
    np.savez(tmp_path / "in.npz", *case.arrays("float32"))
    fresh.run("collage.testing.deployed_process", [str(tmp_path / name) for name in ("model.so", "in.npz", "out.npz")])
    with np.load(tmp_path / "out.npz") as data:
        assert_close(data["arr_0"], expected("bottleneck", "float32"), "float32", K)


def test_the_fastest_kernel_is_found_once_and_ships_alone(tmp_path: Path, backend: EmulatedCutlass) -> None:
    own = EmulatedCutlass(arch="sm_80", cache=tmp_path)
    first, offered = cutlass_libraries.split(blob_of("matmul", own))
    assert len(offered) == 3 and any(own.slow in library.name for library in offered)
    engine.create(blob_of("matmul", own), own.engine_options(threads=1))
    found = choices.read(first["choice_key"], tmp_path)
    assert found is not None
    chosen, times = found["kernel"], found["microseconds"]
    assert own.slow not in chosen
    second, shipped = cutlass_libraries.split(blob_of("matmul", own))
    assert [library.name for library in shipped] == [chosen]
    assert second["choice_key"] == first["choice_key"]
    assert set(times) == {library.name for library in offered}
    assert times[chosen] <= 1.02 * min(times.values())


def test_a_kernel_that_refuses_when_it_is_launched_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: EmulatedCutlass
) -> None:
    own = EmulatedCutlass(arch="sm_80", cache=tmp_path)
    monkeypatch.setattr(EmulatedCutlass, "refusing", own.slow)
    blob = blob_of("matmul", own)
    engine.create(blob, own.engine_options(threads=1))
    header, offered = cutlass_libraries.split(blob)
    times = (choices.read(header["choice_key"], tmp_path) or {})["microseconds"]
    assert {x.name for x in offered} - set(times) == {x.name for x in offered if own.slow in x.name}
    monkeypatch.setattr(EmulatedCutlass, "refusing", "")
    with pytest.raises(CompiledModelError, match=r"no kernel runs.*misaligned operand"):
        engine.create(blob_of("batch", own), own.engine_options(threads=1))


class Watched(EmulatedCutlass):
    """Remembers what it was asked to compile together."""

    def __init__(self, arch: str, cache: Path) -> None:
        super().__init__(arch=arch, cache=cache)
        self.together: list[list[str]] = []

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLibrary]:
        self.together.append([kernel.name for kernel in kernels])
        return super().compile(kernels)


def test_the_kernels_of_several_partitions_are_compiled_together(tmp_path: Path, backend: EmulatedCutlass) -> None:
    watched = Watched("sm_80", tmp_path)
    cases = [(CASES[name], dtype) for name in ("matmul", "rows of a batch") for dtype in ("float16", "float32")]
    functions = [codegen_function(whole(case.module(dtype), watched, case.label)) for case, dtype in cases]
    watched.prewarm(functions)
    (together,) = watched.together
    for function in functions:
        watched.engine_blob(function)
    alone = watched.together[1:]
    assert len(alone) == 4 and set(together) == {name for names in alone for name in names}
    assert len(together) == len(set(together)) < sum(map(len, alone)), "partitions that share a kernel compile it once"


def test_a_choice_is_for_one_problem_on_one_architecture(backend: EmulatedCutlass) -> None:
    other = EmulatedCutlass(arch="sm_86", cache=backend.cache)
    blobs = [blob_of("matmul", backend), blob_of("rows of a batch", backend), blob_of("matmul", other)]
    keys = {cutlass_libraries.split(blob)[0]["choice_key"] for blob in blobs}
    assert len(keys) == 3


def test_kernels_that_do_not_run_a_problem_are_not_chosen(tmp_path: Path, backend: EmulatedCutlass) -> None:
    """Those that divide k take no batches."""
    own = EmulatedCutlass(arch="sm_80", cache=tmp_path)
    blob = blob_of("batch", own)
    engine.create(blob, own.engine_options(threads=1))
    header, offered = cutlass_libraries.split(blob)
    times = (choices.read(header["choice_key"], tmp_path) or {})["microseconds"]
    assert {library.name for library in offered} - set(times) == {x.name for x in offered if x.name.endswith("streamk")}


def test_damaged_and_foreign_blobs_are_errors_that_say_so(backend: EmulatedCutlass) -> None:
    blob = blob_of("matmul", backend)
    with pytest.raises(CompiledModelError, match="kernels of a CUTLASS partition are damaged"):
        engine.create(blob[:-100], {})
    with pytest.raises(CompiledModelError, match="not the blob"):
        engine.create(b"something else", {})


def test_a_kernel_of_another_interface_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: EmulatedCutlass
) -> None:
    from collage.backends.cuda.cutlass import build as cutlass_build

    changed = tmp_path / "templates"
    changed.mkdir()
    for file in cutlass_build.TEMPLATES.iterdir():
        (changed / file.name).write_text(file.read_text().replace("kInterface = 1;", "kInterface = 1000;"))
    monkeypatch.setattr(cutlass_build, "TEMPLATES", changed)
    blob = blob_of("matmul", EmulatedCutlass(arch="sm_80", cache=tmp_path))
    with pytest.raises(CompiledModelError, match="compiled for interface 1000"):
        engine.create(blob, {})


def test_a_call_with_too_few_tensors_is_an_error(backend: EmulatedCutlass) -> None:
    run = engine.create(blob_of("matmul", backend), {"cache": str(backend.cache)})
    with pytest.raises(ValueError, match="takes 2 tensors, 1 were given"):
        run(*tensors("matmul", "float16"))
