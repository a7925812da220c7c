"""The CUTLASS kernels that networks need, compiled by nvcc for a device that need not be there.

    python -m benchmarks.gpu.catalogue --cache DIR --out catalogue.jsonl [--networks bert_base] [--arch sm_90a] [--all]

The folder can be carried to the device's machine: `CutlassBackend(cache=...)`, or the user's own cache, finds what is
there (with the same CUTLASS, and the same major and minor version of nvcc). `--list` only says what is there. Exits
with status 1 where a kernel does not compile, spills registers, has its tensor operations serialised, or has no
instructions of the tensor cores in its machine code (`cuobjdump`; without it, of its half-precision kernels, nothing is
said of that).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import collage
from benchmarks.workloads import NAMES, build
from collage.api.partitioner import enumerate_candidates
from collage.backends.base import Backend
from collage.backends.cuda.cutlass.backend import CutlassBackend
from collage.backends.cuda.cutlass.build import Compiler
from collage.backends.cuda.cutlass.epilogue import Epilogue
from collage.backends.cuda.cutlass.kernels import Kernel, kernels_for
from collage.backends.cuda.cutlass.problem import Computation, read_computation
from collage.backends.cuda.native import TVMCudaBackend
from collage.backends.cuda.ptxas import kernel_usages, losses
from collage.errors import CodegenError
from collage.graph.from_relax import read_graph

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder of compiled kernels")
    parser.add_argument("--out", type=Path, help="one row for each kernel; those that have one are not compiled again")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--networks", nargs="*", default=NAMES)
    parser.add_argument("--dtypes", nargs="*", default=("float16", "float32"))
    parser.add_argument("--all", action="store_true", help="every kernel that there is, whatever networks need")
    parser.add_argument("--list", action="store_true", help="only say which are there")
    asked = parser.parse_args()
    compiler = Compiler(asked.arch, asked.cache)
    kernels = every_kernel(asked.arch) if asked.all else needed(asked.networks, asked.dtypes, asked.arch)
    absent = compiler.absent(kernels)
    print(f"{len(kernels)} kernels: {len(kernels) - len(absent)} are there, {len(absent)} are not", flush=True)
    known = rows_of(asked.out, asked.arch)
    bad = sum(bool(known[kernel.name]["wrong"]) for kernel in kernels if kernel.name in known)
    left = [] if asked.list else [kernel for kernel in kernels if kernel.name not in known]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(lambda kernel: examine(compiler, kernel), left):
            bad += bool(row["wrong"])
            print(f"{row['kernel']}: {row['wrong'] or 'right'}  {row['kernels']}, {row['seconds']} s", flush=True)
            if asked.out is not None:
                with asked.out.open("a") as stream:
                    stream.write(json.dumps(row) + "\n")
    raise SystemExit(1 if bad else 0)


def rows_of(path: Path | None, arch: str) -> dict[str, Row]:
    """Name of a kernel -> its row for this architecture, as an earlier run wrote it."""
    if path is None or not path.exists():
        return {}
    rows = map(json.loads, path.read_text().splitlines())
    return {row["kernel"]: row for row in rows if row["arch"] == arch}


def needed(networks: Iterable[str], dtypes: Iterable[str], arch: str) -> list[Kernel]:
    """The kernels for all candidates of networks, those for the largest products first."""
    sizes: dict[Kernel, int] = {}
    for network in networks:
        for dtype in dtypes:
            for computation in computations(network, dtype, CutlassBackend(arch=arch)):
                work = computation.sizes["m"] * computation.sizes["n"] * computation.sizes["k"]
                for kernel in kernels_for(computation, arch, "float32"):
                    sizes[kernel] = max(work, sizes.get(kernel, 0))
    return sorted(sizes, key=lambda kernel: -sizes[kernel])


def computations(network: str, dtype: str, backend: CutlassBackend) -> Iterator[Computation]:
    """What CUTLASS may compute of a network."""
    graph = read_graph(collage.load(build(network, dtype=dtype), device="cuda"))
    others: dict[str, Backend] = {"tvm-cuda": TVMCudaBackend(arch="sm_90"), backend.name: backend}
    for candidate in enumerate_candidates(graph, others):
        if candidate.backend == backend.name:
            inside = candidate.sub_graph.inside
            bound = {graph.nodes[i].var: graph.nodes[i].expr for i in inside}
            try:
                yield read_computation(graph.nodes[max(inside)].var, bound)
            except CodegenError:
                continue


def every_kernel(arch: str) -> list[Kernel]:
    """The kernels of all dtypes, layouts and alignments."""
    found: dict[Kernel, None] = {}
    for dtype in ("float16", "bfloat16", "float32"):
        for kind in ("gemm", "conv2d"):
            for column in (False, True):
                for n, k in ((64, 64), (66, 64), (64, 66), (66, 66), (65, 64)):
                    sizes = {"m": 64, "n": n, "k": k, "batch": 1, "channels": k}
                    computation = Computation(kind, dtype, column, sizes, {}, Epilogue(None))
                    found.update(dict.fromkeys(kernels_for(computation, arch, "float32")))
    return list(found)


def examine(compiler: Compiler, kernel: Kernel) -> Row:
    """Compile one kernel, unless it is there, and say what is wrong with it."""
    begin = time.monotonic()
    row: Row = {"kernel": kernel.name, "arch": compiler.arch, "kernels": [], "tensor_cores": None}
    try:
        (library,) = compiler.libraries([kernel])
    except CodegenError as error:
        return {**row, "wrong": str(error)[:300], "seconds": 0.0}
    report = compiler.report(kernel)
    usages = kernel_usages(report)
    wrong = [f"{usage.spilled} bytes spilled" for usage in usages if usage.spilled] + losses(report)
    instruction = "HGMMA" if "sm90" in kernel.name else "HMMA" if "_half_" in kernel.name else ""
    code = machine_code(compiler.file(kernel)) if instruction else None
    if code is not None and instruction not in code:
        wrong.append(f"no {instruction} in its machine code")
    row["kernels"] = [[usage.registers, usage.stack, usage.spilled, usage.shared] for usage in usages]
    row["tensor_cores"] = code.count(instruction) if code is not None else None
    row["bytes"] = len(library.code)
    return {**row, "wrong": "; ".join(wrong), "seconds": round(time.monotonic() - begin, 1)}


def machine_code(library: Path) -> str | None:
    """The instructions in a library, as text; None where there is no disassembler, or it fails."""
    tool = find_disassembler()
    if tool is None:
        return None
    ran = subprocess.run([tool, "-sass", str(library)], capture_output=True, text=True)
    return None if ran.returncode else ran.stdout  # it cannot do without nvdisasm, which has a wheel of its own


def find_disassembler() -> str | None:
    """cuobjdump: on the path, in a wheel of NVIDIA's, or in Triton's."""
    if found := shutil.which("cuobjdump"):
        return found
    for package, pattern in (("nvidia", "*/bin/cuobjdump"), ("triton", "backends/nvidia/bin/cuobjdump")):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in Path(folder).glob(pattern):
                return str(path)
    return None


if __name__ == "__main__":
    main()
