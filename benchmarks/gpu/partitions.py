"""In how few partitions the networks run on a GPU, by the libraries at hand; no device is needed.

    python -m benchmarks.gpu.partitions [--networks bert_base] [--dtypes float16]

At batch 1 a network takes at least 2 µs for each kernel of a replayed graph, whatever the kernels compute. A partition
is a kernel or more, so the least number of partitions bounds what a placement can reach. It is counted for TVM's
kernels alone, with NVIDIA's libraries, and for these on the network before products of one tensor were merged.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

import collage
from benchmarks.workloads import NAMES, build
from collage.api.partitioner import enumerate_candidates
from collage.backends.base import Backend
from collage.backends.cuda.cublas import CublasBackend
from collage.backends.cuda.cudnn.backend import CudnnBackend
from collage.backends.cuda.cutlass.backend import CutlassBackend
from collage.backends.cuda.native import TVMCudaBackend
from collage.frontend.passes.layout import channels_last
from collage.frontend.passes.parallel_products import merged_products
from collage.graph.candidates import HOST
from collage.graph.from_relax import read_graph
from collage.search.phase import fewest_partitions
from searchers.dijkstra import DijkstraSearcher

LIBRARIES = ("cublas", "cudnn", "cutlass")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="*", default=NAMES)
    parser.add_argument("--dtypes", nargs="*", choices=("float16", "float32"), default=("float16", "float32"))
    asked = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for title in ("network", "TVM alone", "with libraries", "likewise, not merged"):
        table.add_column(title)
    for name in asked.networks:
        for dtype in asked.dtypes:
            apart = channels_last(collage.load(build(name, dtype=dtype)))
            merged = merged_products(apart)
            counts = [fewest(merged, ["tvm-cuda"]), fewest(merged, ["tvm-cuda", *LIBRARIES])]
            table.add_row(f"{name} {dtype}", *map(str, counts), str(fewest(apart, ["tvm-cuda", *LIBRARIES])))
    Console(width=100).print(table)


def fewest(module: Any, names: Sequence[str]) -> int:
    """The partitions of the cover that has the fewest, of these backends."""
    graph = read_graph(module)
    known: list[Backend] = [
        TVMCudaBackend(arch="sm_90"),
        CublasBackend(),
        CudnnBackend(),
        CutlassBackend(arch="sm_90a"),
    ]
    backends = {backend.name: backend for backend in known if backend.name in names}
    cover = fewest_partitions(DijkstraSearcher(), graph, enumerate_candidates(graph, backends), names)
    return sum(candidate.backend != HOST for candidate in cover)


if __name__ == "__main__":
    main()
