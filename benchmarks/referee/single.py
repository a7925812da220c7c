"""Every single-backend plan of a network, compiled: `python -m benchmarks.referee.single MODEL.onnx FOLDER`.

Writes FOLDER/BACKEND.so for each placement on one backend (TVM, or whoever comes first, runs what it does not take),
and FOLDER/untouched.so, TVM's own build of the whole. A backend that cannot compile its share is told and left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from collage.api.partitioner import enumerate_candidates
from collage.backends.resolve import available_backends
from collage.compile.build import build, build_untouched
from collage.compile.rewrite import apply
from collage.cost.cost import Cost
from collage.errors import CollageError
from collage.frontend import load
from collage.graph.from_relax import read_graph
from collage.runtime.threads import configure_threads
from collage.search import CostTable, SearchProblem, execution_order
from collage.search.single_backend import single_backend
from searchers.dijkstra import DijkstraSearcher


def export_single(model: Path, folder: Path, threads: int) -> dict[str, str]:
    """Compile them all.

    Returns
    -------
    dict
        Backend that is left out -> why.
    """
    configure_threads(threads)
    module = load(model)
    graph = read_graph(module)
    backends = {backend.name: backend for backend in available_backends("cpu")}
    problem = SearchProblem(
        graph=graph,
        candidates=enumerate_candidates(graph, backends),
        cost_table=CostTable(lambda asked: [Cost(1.0)] * len(asked)),
        priorities={name: backend.priority for name, backend in backends.items()},
    )
    failed = {}
    for name, cover in single_backend(DijkstraSearcher(), problem, backends.values()).items():
        try:
            partitioned = apply(module, graph, execution_order(graph, cover.candidates), backends)
            build(partitioned, list(backends.values()), threads, {}).export(folder / f"{name}.so")
        except CollageError as error:
            failed[name] = str(error)
    try:
        build_untouched(module, threads, {}, "cpu").export(folder / "untouched.so")
    except CollageError as error:  # operators of ONNX that only engines run
        failed["untouched"] = str(error)
    return failed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, reason in export_single(options.model, options.folder, options.threads).items():
        print(f"{name} is left out: {reason}")


if __name__ == "__main__":
    main()
