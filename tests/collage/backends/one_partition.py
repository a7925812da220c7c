"""Networks that a library backend takes as one partition, and its results held against TVM's kernels in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.annotations.precision import UNKNOWN, Range, with_ranges
from collage.backends.base import Backend
from collage.compile.build import build, compile_partitioned
from collage.compile.rewrite import apply
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.graph.kinds import NodeKind
from collage.rules.base import PartitionSpec
from collage.runtime import engines
from collage.testing import fresh

Body = Callable[..., Any]
Shapes = list[tuple[int, ...]]


def network(dtype: str, shapes: Shapes, body: Body) -> Any:
    """A canonical module; `body(emit, weight, *inputs)` makes its result, `weight(*shape)` a constant."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return relax.const(rng.uniform(-1, 1, shape).astype(np.float32).astype(dtype), dtype)

    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(body(builder.emit, weight, *params))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


def candidates(backend: Backend, module: Any) -> tuple[DataflowGraph, list[CandidatePartition]]:
    graph = read_graph(module)
    return graph, backend.rule().all_candidates(graph, PartitionSpec(backend.rule(), backend.name))


def labels(backend: Backend, module: Any) -> list[str]:
    """The labels of all candidates."""
    return sorted(label for candidate in candidates(backend, module)[1] for label, _ in candidate.composites)


def as_one_partition(backend: Backend, shapes: Shapes, body: Body, ends: Range = UNKNOWN) -> Any:
    """The partitioned module of a network that is one candidate as a whole, of which each value ranges over `ends`."""
    module = network("float32", shapes, body)
    nodes = [node for node in read_graph(module).nodes if node.kind is not NodeKind.CONSTANT]
    module = with_ranges(module, [ends] * len(nodes))
    graph, found = candidates(backend, module)
    (whole,) = [candidate for candidate in found if candidate.sub_graph.inside == graph.coverable]
    return apply(module, graph, [whole], {backend.name: backend})


def function_of(module: Any) -> Any:
    """The `Codegen` function of a module of one partition."""
    return next(f for _, f in module.functions_items() if "Codegen" in (f.attrs or {}))


def check(backend: Backend, shapes: Shapes, body: Body, threads: int = 2) -> None:
    """Holds the backend's result against TVM's own kernels in float64."""
    engines.register()
    rng = np.random.default_rng(1)
    arrays = [rng.uniform(-2, 2, shape).astype(np.float32) for shape in shapes]
    executable = compile_partitioned(as_one_partition(backend, shapes, body), [backend], threads)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    plain = tvm.compile(network("float64", shapes, body), target="llvm")
    exact = [tvm.runtime.tensor(array.astype(np.float64)) for array in arrays]
    expected = relax.VirtualMachine(plain, tvm.cpu())["main"](*exact).numpy()
    assert np.abs(result - expected).max() < 2e-5 * np.abs(expected).max()


def check_exported(backend: Backend, shapes: Shapes, body: Body, folder: Path) -> None:
    """Holds what an exported model gives in a process that imports nothing of the compiling side against this one's."""
    arrays = [np.random.default_rng(1).uniform(-2, 2, shape).astype(np.float32) for shape in shapes]
    compiled = build(as_one_partition(backend, shapes, body), [backend], threads=2)
    compiled.export(folder / "model.so")
    np.savez(folder / "in.npz", *arrays)
    fresh.run("collage.testing.deployed_process", [str(folder / name) for name in ("model.so", "in.npz", "out.npz")])
    with np.load(folder / "out.npz") as data:
        np.testing.assert_array_equal(data["arr_0"], compiled(*arrays))
