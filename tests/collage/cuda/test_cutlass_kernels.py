"""Which kernels there are for a product, and their compilation by nvcc (`cuda_build`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cutlass_cases import CASES
from product_cases import codegen_function, whole

from collage.backends.cuda.cutlass import build as cutlass_build
from collage.backends.cuda.cutlass.backend import CutlassBackend
from collage.backends.cuda.cutlass.build import Compiler
from collage.backends.cuda.cutlass.epilogue import Epilogue
from collage.backends.cuda.cutlass.kernels import Kernel, kernels_for
from collage.backends.cuda.cutlass.problem import Computation
from collage.errors import CodegenError
from collage.runtime.cuda.cutlass import libraries as cutlass_libraries

pytestmark = pytest.mark.emulation


def product(
    m: int, n: int, k: int, dtype: str = "float16", column_major: bool = False, kind: str = "gemm"
) -> Computation:
    sizes = {"m": m, "n": n, "k": k, "batch": 1, "channels": k}
    return Computation(kind, dtype, column_major, sizes, {}, Epilogue(None))


def names(computation: Computation, arch: str = "sm_90a", precision: str = "float32") -> list[str]:
    return [kernel.name for kernel in kernels_for(computation, arch, precision)]


def test_hopper_kernels_where_rows_are_aligned_to_sixteen_bytes() -> None:
    aligned, unaligned = names(product(64, 64, 64)), names(product(64, 66, 64))
    assert sum(name.startswith("gemm_sm90") for name in aligned) == 3
    assert any(name.startswith("gemm_sm80") for name in aligned), "tensor maps cannot describe everything"
    assert unaligned and all(name.startswith("gemm_sm80") for name in unaligned)
    assert all(name.startswith("gemm_sm80") for name in names(product(64, 64, 64), "sm_80"))


def test_float32_is_float32_unless_asked_otherwise() -> None:
    assert all("_simt_" in name for name in names(product(64, 64, 64, "float32")))
    assert all("_tf32_" in name for name in names(product(64, 64, 64, "float32"), precision="tf32"))
    assert all("_simt_" not in name for name in names(product(64, 64, 64), precision="tf32"))


def test_alignments_follow_the_rows_of_each_operand() -> None:
    """Of A, B and D: by k, by n or by k when B lies by columns, and by n."""
    assert all("_a882" not in name and "_a881" in name for name in names(product(8, 2, 64, column_major=True), "sm_80"))
    assert all("_a821" in name for name in names(product(8, 2, 64), "sm_80"))
    assert all("_a111" in name for name in names(product(3, 5, 7, "float32"), "sm_80"))
    assert names(product(8, 8, 7)) == []
    assert all("_a41" in name for name in names(product(8, 6, 16, "float32", kind="conv2d"), "sm_80", "tf32"))


def test_extents_do_not_make_a_kernel() -> None:
    """Products of one dtype, layout and alignment share their kernels."""
    assert names(product(8, 16, 32)) == names(product(3, 1024, 768))
    assert names(product(8, 16, 32)) != names(product(8, 16, 32, column_major=True))


def test_names_say_all_that_sources_do() -> None:
    kernels: dict[str, str] = {}
    for dtype in ("float16", "bfloat16", "float32"):
        for kind in ("gemm", "conv2d"):
            for column in (False, True):
                for n, k in ((64, 64), (66, 64), (64, 66)):
                    for arch, precision in (("sm_80", "float32"), ("sm_90a", "tf32")):
                        for kernel in kernels_for(product(8, n, k, dtype, column, kind), arch, precision):
                            assert kernels.setdefault(kernel.name, kernel.source) == kernel.source
    assert len(set(kernels.values())) == len(kernels)


def fake_compiler(tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler that is a shell script; its arguments end with: -o TARGET SOURCE."""
    tool = tmp_path / "nvcc"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(cutlass_build, "find_nvcc", lambda: str(tool))
    monkeypatch.setattr(cutlass_build, "cutlass_version", lambda: "4.2.0")
    monkeypatch.setattr(cutlass_build, "nvcc_version", lambda: "13.0")
    monkeypatch.setattr(cutlass_build, "_include_folder", lambda: tmp_path)
    return Compiler("sm_90a", tmp_path / "cache")


LAST = 'for last; do target="$before"; before="$last"; done'


def test_a_kernel_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    compiler = fake_compiler(tmp_path, f'{LAST}\necho x >> {count}\ncp "$last" "$target"', monkeypatch)
    kernels = [Kernel("one", "// 1"), Kernel("two", "// 2")]
    for _ in range(2):
        assert [x.code for x in compiler.libraries(kernels)] == [b"// 1", b"// 2"]
    assert count.read_text().split() == ["x", "x"]
    compiler.libraries([Kernel("one", "// another")])
    Compiler("sm_80", compiler.folder).libraries(kernels)
    assert len(count.read_text().split()) == 5, "another source, and another architecture"


def test_kernels_that_do_not_compile_are_left_out_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    refuse = 'grep -q good "$last" && cp "$last" "$target" && exit\necho "error: too large" >&2; exit 2'
    script = f"{LAST}\necho x >> {count}\n{refuse}"
    compiler = fake_compiler(tmp_path, script, monkeypatch)
    bad, good = Kernel("bad", "// b"), Kernel("fine", "// good")
    for _ in range(2):
        assert [x.name for x in compiler.libraries([bad, good])] == ["fine"]
    assert len(count.read_text().split()) == 2
    with pytest.raises(CodegenError, match="no CUTLASS kernel compiles: bad: error: too large"):
        compiler.libraries([bad])


def test_the_command_names_the_architecture_and_links_no_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = fake_compiler(tmp_path, "", monkeypatch).command(Path("a.cu"), Path("a.so"))
    assert "arch=compute_90a,code=sm_90a" in command and "--cudart=none" in command
    assert "-DNDEBUG" in command, "an assertion is a function call, across which wgmma cannot be pipelined"


@pytest.mark.cuda_build
@pytest.mark.parametrize(
    ("name", "dtype", "arch", "precision", "number"),
    [
        ("bottleneck", "float32", "sm_90", "float32", 1),
        ("bottleneck", "float32", "sm_90", "tf32", 2),
        ("transposed", "float16", "sm_90", "float32", 1),
        ("batch", "bfloat16", "sm_80", "float32", 0),
        ("strided", "float16", "sm_80", "float32", 1),
        ("strided", "float32", "sm_80", "float32", 1),
    ],
    ids=["simt", "tf32 divided along k", "hopper", "tensor operations", "convolution", "simt convolution"],
)
def test_compiles(tmp_path: Path, name: str, dtype: str, arch: str, precision: str, number: int) -> None:
    """One kernel of each template: its machine code is there, and it needs nothing but CUDA's runtime."""
    backend = CutlassBackend(precision, arch, tmp_path)
    case = CASES[name]
    computation = computation_of(codegen_function(whole(case.module(dtype), backend, case.label)))
    kernel = backend.kernels(computation)[number]
    (library,) = backend.compile([kernel])
    (file,) = tmp_path.glob("*.so")
    assert file.read_bytes() == library.code and library.name == kernel.name
    defined = subprocess.run(["nm", "-D", "--defined-only", file], check=True, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in defined.splitlines()} >= {"collage_cutlass_create", "collage_cutlass_run"}
    missing = subprocess.run(["nm", "-D", "-u", file], check=True, capture_output=True, text=True).stdout
    needed = {line.split()[-1].partition("@")[0] for line in missing.splitlines()}
    assert not {n for n in needed if n.startswith("cu") and not n.startswith(("cuda", "cu_"))}, "no driver functions"


def computation_of(function: object) -> Computation:
    from collage.backends.cuda.cutlass.problem import read_computation
    from collage.backends.library.composite import Composite

    composite = Composite.of(function)
    return read_computation(composite.result, composite.bound)


@pytest.mark.cuda_build
def test_the_epilogue_walks_over_every_element_of_its_tile_once(tmp_path: Path) -> None:
    """Of the tiles of every 2.x kernel: by the thread maps that CUTLASS made for them, on the host."""
    kernels = {
        kernel.name: kernel.source
        for dtype, precision in (("float16", "float32"), ("float32", "float32"), ("float32", "tf32"))
        for n in (64, 66)
        for kernel in kernels_for(product(64, n, 64, dtype), "sm_80", precision)
        if "streamk" not in kernel.name
    }
    units, checks = [], []
    for i, source in enumerate(kernels.values()):
        parts = source.split("using Parts = ")[1].split(";")[0]
        units.append(f"using Parts{i} = {parts};")
        checks.append(f'  failed += covers<Parts{i}>("{list(kernels)[i]}");')
    source = tmp_path / "walk.cu"
    source.write_text(WALK.replace("UNITS", "\n".join(units)).replace("CHECKS", "\n".join(checks)))
    command = Compiler("sm_80", tmp_path).command(source, tmp_path / "walk")
    drop = ("-shared", "--cudart=none", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-O3")
    subprocess.run([part for part in command if part not in drop], check=True)
    done = subprocess.run([tmp_path / "walk"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


WALK = r"""
#include <cstdio>
#include <vector>
#include "gemm_sm80.cuh"

UNITS

template <class Parts>
int covers(char const* name) {
  using Map = typename Parts::ThreadMap;
  using Walk = collage_cutlass::TileWalk<Map>;
  using Shape = typename Parts::Mma::Shape;
  std::vector<int> seen(Shape::kM * Shape::kN, 0);
  for (int thread = 0; thread < Map::kThreads; ++thread) {
    cutlass::MatrixCoord const start = Map::initial_offset(thread);
    for (int step = 0; step < Parts::Plain::Epilogue::OutputTileIterator::kIterations; ++step) {
      for (int r = 0; r < Walk::kRows; ++r) {
        for (int c = 0; c < Walk::kColumns; ++c) {
          int const row = start.row() + Walk::step_row(step) + Walk::access_row(r);
          int const column = start.column() + Walk::access_column(c);
          for (int e = 0; e < Map::kElementsPerAccess; ++e) {
            if (row < Shape::kM && column + e < Shape::kN) ++seen[row * Shape::kN + column + e];
          }
        }
      }
    }
  }
  int wrong = 0;
  for (int count : seen) wrong += count != 1;
  if (wrong) std::printf("%s: %d of %d elements\n", name, wrong, static_cast<int>(seen.size()));
  return wrong;
}

int main() {
  int failed = 0;
CHECKS
  return failed != 0;
}
"""


def test_the_libraries_behind_a_blob_come_back() -> None:
    from collage.runtime.blob import pack

    libraries = [cutlass_libraries.KernelLibrary("a", b"\0" * 1000), cutlass_libraries.KernelLibrary("b", b"xyz")]
    entries, packed = cutlass_libraries.describe_libraries(libraries)
    header, found = cutlass_libraries.split(pack({"op": "gemm", "kernels": entries}, {}) + packed)
    assert found == libraries and header["op"] == "gemm" and len(packed) < 100
