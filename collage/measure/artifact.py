"""One candidate, alone, ready to be loaded and timed.

A candidate that becomes a blob (graph style, and most of library style) is its blob in a file and a small library that
calls it through the VM; a native one is its kernel in a library, with the weights handed in as arguments; any other is
the whole exported model. So no weights travel through the compiler, and what is timed is the kernel, or the blob, that
will ship.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.base import Backend
from collage.compile.build import Blob, compile_partitioned, write_blob
from collage.compile.calls import external_call
from collage.compile.rewrite import Partition, function_type, partition_function
from collage.cost.estimator import Workload
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.rounding import label_tolerance, rounding_tolerance

SYMBOL = "collage_candidate"


@dataclass(frozen=True)
class Artifact:
    """What the timing process loads.

    Attributes
    ----------
    library
        Path of the shared library with the VM's bytecode and the native kernels.
    weights
        Paths of `.npy` files that follow the inputs as arguments of `main`.
    blobs
        What the engines run; their symbols are what the library calls.
    warm_up
        The probe of the same backend (`collage.measure.probe`), called without arguments before every cold sample to
        wake its threads; None leaves them as they are.
    fed
        Whether what the warm-up gives is its input, however it is timed: how transitions are measured.
    device
        The kind of device that it runs on.
    tolerance
        Of its backends' precision (`Backend.tolerance`), or of quantisation; the protocol's counts where that is wider.
    """

    library: str
    weights: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()
    warm_up: Artifact | None = None
    fed: bool = False
    device: str = "cpu"
    tolerance: float = 0.0


@dataclass(frozen=True)
class Preparation:
    """A candidate before compilation, cheap to send to another process: the module as JSON, weights and blob in
    files.
    """

    module_json: str
    artifact: Artifact
    backend: Backend
    threads: int


def prewarm(workloads: Iterable[Workload]) -> None:
    """Let backends compile together what the blobs of several workloads need (`Backend.prewarm`)."""
    by_backend: dict[str, list[Workload]] = {}
    for workload in workloads:
        if workload.backend.makes_blobs:
            by_backend.setdefault(workload.backend.name, []).append(workload)
    for own in by_backend.values():
        own[0].backend.prewarm(_partition(workload)[1].function for workload in own)


def prepare(workload: Workload, directory: Path) -> Preparation:
    """Write weights and blob of a workload to `directory` and make the small module that has to be compiled.

    Raises
    ------
    CodegenError
        The backend cannot take the sub-graph.
    """
    directory.mkdir(parents=True, exist_ok=True)
    graph, partition = _partition(workload)
    backend, threads = workload.backend, workload.threads
    library = str(directory / "candidate.so")
    device = backend.device
    rounding = max(
        rounding_tolerance(workload.module["main"]), label_tolerance(label for label, _ in workload.composites)
    )
    tolerance = max(backend.tolerance, rounding)
    if backend.makes_blobs:
        blob = write_blob(backend, partition.function, threads, directory)
        artifact = Artifact(library, blobs=(blob,), device=device, tolerance=tolerance)
        module = _calling_module(graph, partition, relax.ExternFunc(SYMBOL), {})
    else:
        weights = _write_weights(graph, partition, directory) if backend.style == "native" else ()
        artifact = Artifact(library, weights=weights, device=device, tolerance=tolerance)
        symbol = relax.GlobalVar(SYMBOL)
        relax.expr._update_type(symbol, function_type(partition.function))
        functions = {gv: f for gv, f in workload.module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
        module = _calling_module(graph, partition, symbol, {**functions, symbol: partition.function})
    return Preparation(tvm.ir.save_json(module), artifact, backend, threads)


def _partition(workload: Workload) -> tuple[DataflowGraph, Partition]:
    """The graph of a workload's module, and the function that all of it is."""
    graph = read_graph(workload.module)
    inside = graph.coverable
    order = list(inside)
    composites = tuple((label, IndexSet(order[p] for p in positions)) for label, positions in workload.composites)
    candidate = CandidatePartition(SubGraph(graph, inside), workload.backend.name, composites)
    return graph, partition_function(graph, candidate, workload.backend, SYMBOL)


def compile_artifact(preparation: Preparation) -> Artifact:
    """Compile to the shared library.

    Runs in a process of its own: a code generator that crashes takes only
    that one down.
    """
    module = tvm.ir.load_json(preparation.module_json)
    # A candidate is one call: as a CUDA graph it would be timed with what the whole network is launched with once.
    executable = compile_partitioned(module, [preparation.backend], preparation.threads, graph=False)
    executable.export_library(preparation.artifact.library)
    return preparation.artifact


def _write_weights(graph: DataflowGraph, partition: Partition, directory: Path) -> tuple[str, ...]:
    paths = []
    for position, index in enumerate(partition.weights):
        path = directory / f"weight{position}.npy"
        np.save(path, graph.nodes[index].expr.value.numpy())
        paths.append(str(path))
    return tuple(paths)


def _calling_module(graph: DataflowGraph, partition: Partition, callee: Any, functions: dict[Any, Any]) -> Any:
    """A module whose `main` takes the partition's inputs and weights, calls it once, and returns what it gives."""
    params = [relax.Var(p.name, p.ty) for p in partition.function.params]
    result_type = partition.function.ret_ty
    if isinstance(callee, relax.ExternFunc):
        call = external_call(str(callee.global_symbol), params, result_type)
    else:
        call = relax.Call(callee, params)
    out = relax.Var("output", result_type)
    body = relax.SeqExpr([relax.DataflowBlock([relax.VarBinding(out, call)])], out)
    main = relax.Function(params, body, result_type, is_pure=True).with_attr("global_symbol", "main")
    return relax.transform.Normalize()(tvm.IRModule({**functions, relax.GlobalVar("main"): main}))


def write_arrays(arrays: tuple[np.ndarray, ...], directory: Path, prefix: str) -> tuple[str, ...]:
    """Save arrays for the timing process; returns their paths."""
    paths = []
    for position, array in enumerate(arrays):
        path = directory / f"{prefix}{position}.npy"
        np.save(path, array)
        paths.append(str(path))
    return tuple(paths)
