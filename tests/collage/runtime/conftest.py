"""Small compiled models: one partition of an engine, kernels of TVM alone, and both together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from collage import plugins
from collage.backends.base import Backend
from collage.compile.build import build
from collage.compile.rewrite import apply
from collage.graph.candidates import HOST, CandidatePartition
from collage.graph.from_relax import read_graph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.search import execution_order

SHAPE = (4, 50)
#: Where a compiled model of this name is; the name is a key of `PLACES`.
Models = Callable[[str], Path]


def sums_and_relu() -> Any:
    """(a, b) -> (a - b, relu(a - b), exp(b)): nodes 0, 1 and 2 of those that are placed."""
    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            difference = builder.emit(relax.op.subtract(a, b))
            positive = builder.emit(relax.op.nn.relu(difference))
            power = builder.emit(relax.op.exp(b))
            out = builder.emit_output(relax.Tuple([difference, positive, power]))
        builder.emit_func_output(out)
    return builder.get()


def in_another_order() -> Any:
    """(a, b) -> (relu(b - a), b - a): the partition reads b first, and gives the difference first."""
    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            difference = builder.emit(relax.op.subtract(b, a))
            out = builder.emit_output(relax.Tuple([builder.emit(relax.op.nn.relu(difference)), difference]))
        builder.emit_func_output(out)
    return builder.get()


def expected(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    return a - b, np.maximum(a - b, 0), np.exp(b)


def given_back() -> Any:
    """x -> (x reshaped, relu(x)): one output is a view of the input."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            view = builder.emit(relax.op.reshape(x, SHAPE[::-1]))
            out = builder.emit_output(relax.Tuple([view, builder.emit(relax.op.nn.relu(x))]))
        builder.emit_func_output(out)
    return builder.get()


#: Name -> the network, and the nodes of each of its partitions with their backend.
PLACES: dict[str, tuple[Callable[[], Any], Sequence[tuple[str, tuple[int, ...]]]]] = {
    "openvino": (sums_and_relu, [("openvino", (0, 1, 2))]),
    "onnxruntime": (sums_and_relu, [("onnxruntime", (0, 1, 2))]),
    "tvm": (sums_and_relu, [("tvm", (0, 1)), ("tvm", (2,))]),
    "mixed": (sums_and_relu, [("tvm", (0,)), ("openvino", (1,)), ("openvino", (2,))]),
    "engines": (sums_and_relu, [("openvino", (0, 1)), ("onnxruntime", (2,))]),
    "other order": (in_another_order, [("openvino", (0, 1))]),
    "given back": (given_back, [(HOST, (0,)), ("openvino", (1,))]),
}

#: Models with three outputs, of `expected`.
NAMES = [name for name, (network, _) in PLACES.items() if network is sums_and_relu]
rng = np.random.default_rng(0)


def values(count: int = 2) -> list[np.ndarray]:
    return [rng.standard_normal(SHAPE, dtype=np.float32) for _ in range(count)]


def assert_right(results: Sequence[np.ndarray], inputs: Sequence[np.ndarray]) -> None:
    assert len(results) == 3
    for result, right in zip(results, expected(*inputs), strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6)


def partitioned(name: str) -> tuple[Any, dict[str, Backend]]:
    """The partitioned module of a model of `PLACES`, and its backends."""
    network, parts = PLACES[name]
    module = network()
    graph = read_graph(module)
    # Tuples and projections are placed by themselves, after the operators.
    operators = [i for i in graph.coverable if graph.nodes[i].op]
    chosen = [
        CandidatePartition(SubGraph(graph, IndexSet(operators[i] for i in nodes)), backend) for backend, nodes in parts
    ]
    rest = set(graph.coverable) - {i for candidate in chosen for i in candidate.sub_graph.inside}
    chosen += [CandidatePartition(SubGraph(graph, IndexSet([i])), HOST) for i in rest]
    used: dict[str, Backend] = {n: plugins.load("backends", n) for n, _ in parts if n != HOST}
    return apply(module, graph, execution_order(graph, chosen), used), used


def compiled(name: str, threads: int = 2) -> Any:
    """The executable of a model of `PLACES`."""
    module, used = partitioned(name)
    return build(module, used.values(), threads)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    """Compiles on first use."""
    folder = tmp_path_factory.mktemp("models")

    def path_of(name: str) -> Path:
        path = folder / f"{name}.so"
        if not path.exists():
            compiled(name).export(path)
        return path

    return path_of
