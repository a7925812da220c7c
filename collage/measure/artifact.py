"""Artifact: one candidate, alone, ready to be loaded and timed.

Its form follows the style of the backend. A candidate that becomes a blob (graph style, and most of library style) is
its blob in a file and a small library that calls it through the VM. A native candidate is its kernel in a library, with
its weights as arguments, and with the blobs of libraries that it calls. Any other is the whole exported model. No
weights travel through the compiler, and the kernel or blob that is timed is the one that will ship.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.backends.base import Backend
from collage.backends.lowering import Linker
from collage.compile.build import Blob, compile_partitioned, write_blob
from collage.compile.calls import external_call
from collage.compile.rewrite import Body, Partition, function_type, ordered_inputs, ordered_outputs, steps_of
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
    capturable
        Whether its calls may be captured in a CUDA graph (`Backend.capturable`), and so be timed as replays of one.
    """

    library: str
    weights: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()
    warm_up: Artifact | None = None
    fed: bool = False
    device: str = "cpu"
    tolerance: float = 0.0
    capturable: bool = False


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
        own[0].backend.prewarm(_steps(workload)[1][0].function for workload in own)


def prepare(workload: Workload, directory: Path) -> Preparation:
    """Write weights and blob of a workload to `directory` and make the small module that has to be compiled.

    Raises
    ------
    CodegenError
        The backend cannot take the sub-graph.
    """
    directory.mkdir(parents=True, exist_ok=True)
    graph, steps = _steps(workload)
    backend, threads = workload.backend, workload.threads
    rounding = max(
        rounding_tolerance(workload.module["main"]), label_tolerance(label for label, _ in workload.composites)
    )
    blobs: list[Blob] = []
    callees: list[Any] = []
    functions: dict[Any, Any] = {}
    for step in steps:
        if step.backend.makes_blobs:
            blobs.append(write_blob(step.backend, step.function, threads, directory))
            callees.append(relax.ExternFunc(step.symbol))
            continue
        callees.append(relax.GlobalVar(step.symbol))
        relax.expr._update_type(callees[-1], function_type(step.function))
        functions[callees[-1]] = step.function
    if functions:
        functions |= {gv: f for gv, f in workload.module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    artifact = Artifact(
        str(directory / "candidate.so"),
        weights=_write_weights(graph, steps, directory),
        blobs=tuple(blobs),
        device=backend.device,
        tolerance=max(rounding, *(owner.tolerance for owner in (backend, *(step.backend for step in steps)))),
        capturable=all(owner.capturable for owner in (backend, *(step.backend for step in steps))),
    )
    module = _calling_module(graph, list(zip(steps, callees, strict=True)), functions)
    return Preparation(tvm.ir.save_json(module), artifact, backend, threads)


def _steps(workload: Workload) -> tuple[DataflowGraph, list[Partition]]:
    """The graph of a workload's module, and the functions that all of it is."""
    graph = read_graph(workload.module)
    inside = graph.coverable
    order = list(inside)
    composites = tuple((label, IndexSet(order[p] for p in positions)) for label, positions in workload.composites)
    candidate = CandidatePartition(SubGraph(graph, inside), workload.backend.name, composites)
    return graph, steps_of(graph, candidate, workload.backend, SYMBOL)


def compile_artifact(preparation: Preparation, linker: Linker | None = None) -> Artifact:
    """Compile to the shared library, or to what a linker makes for another machine.

    Runs in a process of its own: a code generator that crashes takes only
    that one down.
    """
    module = tvm.ir.load_json(preparation.module_json)
    # A candidate is one call: as a CUDA graph it would be timed with what the whole network is launched with once.
    backends = [preparation.backend, *preparation.backend.libraries.values()]
    executable = compile_partitioned(module, backends, preparation.threads, graph=False)
    if linker is None:
        executable.export_library(preparation.artifact.library)
    else:
        linker.export(executable, Path(preparation.artifact.library))
    return preparation.artifact


def _write_weights(graph: DataflowGraph, steps: Sequence[Partition], directory: Path) -> tuple[str, ...]:
    paths = []
    for position, index in enumerate(_weights(steps)):
        path = directory / f"weight{position}.npy"
        np.save(path, graph.nodes[index].expr.value.numpy())
        paths.append(str(path))
    return tuple(paths)


def _weights(steps: Sequence[Partition]) -> list[int]:
    """The constants that steps take as arguments, each once."""
    return list(dict.fromkeys(index for step in steps for index in step.weights))


def _calling_module(graph: DataflowGraph, steps: Sequence[tuple[Partition, Any]], functions: Mapping[Any, Any]) -> Any:
    """A module whose `main` takes the inputs and weights, calls each step once, and returns what they give.

    Parameters
    ----------
    steps
        Functions, each with the symbol that it is called by.
    functions
        Symbol -> function, of those in the module.
    """
    whole, body = SubGraph(graph, graph.coverable), Body(graph)
    params = body.parameters([*ordered_inputs(whole), *_weights([step for step, _ in steps])])
    outputs = ordered_outputs(whole)
    for step, callee in steps:
        call, result = _call(callee, body.arguments([*step.inputs, *step.weights]), step), step.function.ret_ty
        if len(steps) == 1:  # its tuple, where it gives one, is the result as it is
            out = relax.Var("output", result)
            block = relax.DataflowBlock([relax.VarBinding(out, call)])
            main = relax.Function(params, relax.SeqExpr([block], out), result, is_pure=True)
            break
        body.call(call, result, step.outputs, outputs)
    else:
        main = body.close(params, outputs)
    main = main.with_attr("global_symbol", "main")
    return relax.transform.Normalize()(tvm.IRModule({**functions, relax.GlobalVar("main"): main}))


def _call(callee: Any, arguments: Sequence[Any], step: Partition) -> Any:
    if isinstance(callee, relax.ExternFunc):
        return external_call(str(callee.global_symbol), arguments, step.function.ret_ty)
    return relax.Call(callee, list(arguments))
