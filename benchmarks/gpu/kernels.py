"""Every native kernel of the networks, compiled by NVRTC for a device that need not be there.

    python -m benchmarks.gpu.kernels --out kernels.jsonl [--networks bert_base] [--dtypes float16] [--all]

Of each network the partitions that TVM would run alone, in as few as there can be; with `--all` every different native
candidate. One row for each: registers, spills, instructions of the tensor cores, instructions with too few digits for
float32, and its time on the roofline. What has a row is passed over, so that a run that was stopped goes on. `--table`
prints Markdown of what rows say, `--list` every kernel, the largest expected share first.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

import collage
from benchmarks.gpu.nvrtc import compile_source
from benchmarks.workloads import NAMES, build
from collage.api.partitioner import enumerate_candidates
from collage.backends.cuda.native import TVMCudaBackend
from collage.compile.build import compile_partitioned
from collage.cost.estimator import Workload
from collage.errors import CollageError
from collage.graph.candidates import HOST
from collage.graph.from_relax import read_graph
from collage.measure.artifact import prepare
from collage.measure.workloads import WorkloadFactory
from collage.search.phase import fewest_partitions
from estimators.features.operator import ANCHORS, nbytes, operator_facts, tensors
from searchers.dijkstra import DijkstraSearcher

Row = dict[str, Any]

#: Of an H200: bytes a second of its memory, and floating-point operations a second by dtype.
MEMORY = 4.3e12
ARITHMETIC: Mapping[str, float] = {"float16": 790e12, "bfloat16": 790e12, "float32": 60e12}
#: What a kernel of a replayed graph takes at least, before it computes anything.
LEAST_S = 2e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="rows, one a line; those that are there are kept")
    parser.add_argument("--networks", nargs="*", default=NAMES)
    parser.add_argument("--dtypes", nargs="*", choices=tuple(ARITHMETIC), default=("float16", "float32"))
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--all", action="store_true", help="every candidate, not only those of one cover")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--table", action="store_true", help="print what the rows say, and compile nothing")
    parser.add_argument("--list", action="store_true", help="print every kernel, and compile nothing")
    asked = parser.parse_args()
    rows = read_rows(asked.out)
    if asked.list:
        print(listed(rows))
        return
    if not asked.table:
        end = time.monotonic() + asked.budget
        for name in asked.networks:
            for dtype in asked.dtypes:
                for row in examine(name, dtype, asked.arch, asked.all, rows):
                    rows.append(row)
                    with asked.out.open("a") as stream:
                        stream.write(json.dumps(row) + "\n")
                    if time.monotonic() > end:
                        raise SystemExit("the time is over")
    print(table(rows))


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, which may be packed; none where there is none."""
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines()]


def examine(name: str, dtype: str, arch: str, everything: bool, known: Sequence[Row]) -> Iterator[Row]:
    """The rows of one network that are not known."""
    backend = TVMCudaBackend(arch=arch)
    there = {(row["network"], row["dtype"], row["structure"]) for row in known}
    for workload, count in workloads(name, dtype, backend, everything).items():
        if (name, dtype, workload.structure) not in there:
            facts: Row = {"network": name, "dtype": dtype, "backend": backend.name, "arch": arch}
            facts |= {"structure": workload.structure, "count": count}
            yield {**facts, "operators": workload.operators, **ceiling(workload, dtype), **compiled(workload, arch)}


def workloads(name: str, dtype: str, backend: TVMCudaBackend, everything: bool) -> dict[Workload, int]:
    """The native workloads of a network -> how often one cover of it has them."""
    module = collage.load(build(name, dtype=dtype), device="cuda")
    graph = read_graph(module)
    candidates = enumerate_candidates(graph, {backend.name: backend})
    factory = WorkloadFactory(module, graph, {backend.name: backend}, 1)
    cover = fewest_partitions(DijkstraSearcher(), graph, candidates, [backend.name])
    found = Counter(factory.of(candidate) for candidate in cover if candidate.backend != HOST)
    if everything:
        for candidate in candidates:
            if candidate.backend != HOST:
                found.setdefault(factory.of(candidate), 0)
    return found


def ceiling(workload: Workload, dtype: str) -> Row:
    """Work, traffic, and the seconds that no kernel can be faster than."""
    described = workload.description
    types = {"in": described["inputs"], "node": [node["out"] for node in described["nodes"]]}
    flops, weights, product = 0.0, 0.0, False
    for node in described["nodes"]:
        references = [r for r in _references(node["args"]) if r[0] in ("in", "node", "const")]
        constants = [r[1] for r in references if r[0] == "const"]
        facts = operator_facts(node, [types[r[0]][r[1]] for r in references if r[0] != "const"], constants)
        flops += facts.flops
        weights += facts.weight_bytes
        product = product or (facts.cls in ANCHORS and facts.cls != "depthwise")
    results = [types[r[0]][r[1]] for r in described["outputs"] if r[0] in types]
    moved = weights + sum(nbytes(t) for ty in (*described["inputs"], *results) for t in tensors(ty))
    seconds = max(moved / MEMORY, flops / ARITHMETIC[dtype])
    return {"flops": flops, "bytes": moved, "ceiling_s": seconds, "product": product}


def _references(arguments: Any) -> Iterator[Any]:
    """The references to tensors among the arguments of a node, lists of them included."""
    for argument in arguments:
        if argument and isinstance(argument[0], str):
            yield argument
        elif isinstance(argument, list):
            yield from _references(argument)


def compiled(workload: Workload, arch: str) -> Row:
    """What the compilers make of a workload."""
    begin = time.monotonic()
    try:
        text = source_of(workload)
        made = compile_source(text, arch)
    except (CollageError, RuntimeError) as error:
        lines = [line for line in str(error).splitlines() if "error" in line.lower()] or str(error).splitlines()
        return {"failure": lines[0][:300] if lines else type(error).__name__}
    kernels = [usage.__dict__ for usage in made.kernels]
    found = {"tensor_cores": made.tensor_core_instructions, "imprecise": made.imprecise}
    return {"kernels": kernels, **found, "seconds": round(time.monotonic() - begin, 2)}


def source_of(workload: Workload) -> str:
    """The CUDA source of a native workload."""
    with tempfile.TemporaryDirectory(prefix="collage-kernels-") as folder:
        preparation = prepare(workload, Path(folder))
        module = tvm.ir.load_json(preparation.module_json)
        executable = compile_partitioned(module, [preparation.backend], 1, graph=False)
    return "\n".join(_sources(executable.mod))


def _sources(module: Any) -> Iterator[str]:
    for imported in module.imports:
        if imported.kind == "cuda":
            yield imported.inspect_source()
        yield from _sources(imported)


def spilled(row: Row) -> bool:
    return any(kernel["stack"] or kernel["spilled"] for kernel in row.get("kernels", ()))


def without_tensor_cores(row: Row) -> bool:
    """Whether it multiplies matrices of half precision on the ordinary cores."""
    return bool(row["product"] and row["dtype"] != "float32" and not row.get("tensor_cores") and "failure" not in row)


def expected(row: Row) -> float:
    """Seconds of all partitions of a row: the roofline, and what a kernel takes at least."""
    return float(row["count"]) * (float(row["ceiling_s"]) + LEAST_S * len(row.get("kernels", (None,))))


def by_network(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Network and type -> their rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['network']} {row['dtype']}", []).append(row)
    return found


def table(rows: Sequence[Row]) -> str:
    """One line for each network and type, and one for each kernel with something wrong."""
    lines = ["| network | partitions (different) | registers, local memory | products off tensor cores | roofline |"]
    lines += ["|---|---|---|---|---|"]
    for name, own in by_network(rows).items():
        kernels = [kernel for row in own for kernel in row.get("kernels", ())]
        registers = max((kernel["registers"] for kernel in kernels), default=0)
        failed = sum("failure" in row for row in own)
        local = f"{registers}, {sum(map(spilled, own))}" + (f", {failed} failed" if failed else "")
        off = sum(row["count"] for row in own if without_tensor_cores(row)) if "float16" in name else ""
        seconds = sum(row["count"] * row["ceiling_s"] for row in own)
        numbers = f"{sum(row['count'] for row in own)} ({len(own)})"
        lines.append(f"| {name} | {numbers} | {local} | {off} | {seconds * 1e6:.0f} µs |")
    for row in rows:
        wrong = [row["failure"]] if "failure" in row else []
        wrong += [f"{k['stack']} bytes of local memory" for k in row.get("kernels", ()) if k["stack"] or k["spilled"]]
        wrong += row.get("imprecise", []) if row["dtype"] == "float32" else []
        if wrong:
            lines.append(f"- {row['network']} {row['dtype']} {named(row)}: {'; '.join(dict.fromkeys(wrong))}")
    return "\n".join(lines)


def listed(rows: Sequence[Row]) -> str:
    """Every kernel of every network: the largest expected share first."""
    lines = []
    for name, own in by_network(rows).items():
        whole = sum(map(expected, own))
        lines += [f"{name}: {whole * 1e6:.0f} us expected", "share  times  roofline  registers  spills  tensor  what"]
        for row in sorted(own, key=expected, reverse=True):
            kernels = row.get("kernels", ())
            registers = "+".join(str(kernel["registers"]) for kernel in kernels) or "-"
            spills, tensor = sum(kernel["spilled"] for kernel in kernels), row.get("tensor_cores", 0)
            facts = f"{row['count']:5}  {row['ceiling_s'] * 1e6:8.2f}  {registers:>9}  {spills:6}  {tensor:6}"
            lines.append(f"{expected(row) / whole:5.1%}  {facts}  {named(row)}")
    return "\n".join(lines)


def named(row: Row) -> str:
    """The operators of a row."""
    return ",".join(op.removeprefix("relax.").removeprefix("nn.") for op in row["operators"])[:70]


if __name__ == "__main__":
    main()
