"""Matrix products as Relax modules of one partition, for the tests of libraries that run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax

from collage.compile import rewrite
from collage.graph.candidates import CandidatePartition
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.from_relax import read_graph
from collage.rules.base import PartitionSpec

op, nn = relax.op, relax.op.nn
Shape = tuple[int, ...]
DTYPES: Mapping[str, Any] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """A product and what follows it.

    Attributes
    ----------
    label: of the pattern that takes all of it.
    shapes: of the inputs.
    build: makes the result from `emit` and the inputs.
    reference: makes it from arrays in float64.
    """

    label: str
    shapes: tuple[Shape, ...]
    build: Callable[..., Any]
    reference: Callable[..., np.ndarray]

    def module(self, dtype: str) -> Any:
        """The network: one dataflow block."""
        inputs = [relax.Var(f"x{i}", relax.TensorType(shape, dtype)) for i, shape in enumerate(self.shapes)]
        builder = relax.BlockBuilder()
        with builder.function("main", inputs):
            with builder.dataflow():
                result = builder.emit_output(self.build(builder.emit, *inputs))
            builder.emit_func_output(result)
        return relax.transform.CanonicalizeBindings()(builder.get())

    def arrays(self, dtype: str) -> list[np.ndarray]:
        """Inputs, the same for every call."""
        return [weight(shape, dtype, seed=i) for i, shape in enumerate(self.shapes)]


def weight(shape: Shape, dtype: str, seed: int = 100) -> np.ndarray:
    """Standard normal numbers of a dtype."""
    return np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])


def constant(shape: Shape, seed: int = 100) -> Callable[[Any], Any]:
    """A weight as a Relax constant, given a tensor that has its dtype."""
    return lambda like: relax.const(weight(shape, str(like.ty.dtype), seed))


def candidates(module: Any, backend: Any) -> tuple[DataflowGraph, list[CandidatePartition]]:
    """Everything that a backend's rule finds."""
    graph = read_graph(module)
    return graph, PartitionSpec(backend.rule(), backend.name).candidates(graph)


def labels(found: Sequence[CandidatePartition]) -> list[str]:
    """The patterns' names of candidates, each once."""
    return sorted({label for candidate in found for label, _ in candidate.composites})


def whole(module: Any, backend: Any, label: str) -> Any:
    """The module as one partition of the backend, by the pattern `label`."""
    graph, found = candidates(module, backend)
    covering = [c for c in found if c.composites[0][0] == label and c.sub_graph.inside == graph.coverable]
    assert len(covering) == 1, f"{label} over all operators once, among {labels(found)}"
    return rewrite.apply(module, graph, covering, {backend.name: backend})


def codegen_function(partitioned: Any) -> Any:
    """The one function that the backend compiles."""
    (function,) = [f for _, f in partitioned.functions_items() if f.attrs and "Codegen" in f.attrs]
    return function


def argument_order(partitioned: Any) -> list[int]:
    """Which input of the network is each argument of the one partition: they come in the order of first use."""
    main = partitioned["main"]
    (call,) = [b.value for block in main.body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    return [list(main.params).index(argument) for argument in call.args]


def assert_close(actual: np.ndarray, expected: np.ndarray, dtype: str, k: int) -> None:
    """Equal within what `dtype` and an accumulation of `k` products in float32 leave."""
    relative = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}[dtype]
    scale = np.abs(expected).max()
    error = np.abs(actual.astype(np.float64) - expected).max()
    assert error <= (relative + k * 1e-7) * scale + 1e-12, f"error {error:.3g} at scale {scale:.3g}"


def tensor(array: np.ndarray) -> Any:
    """A TVM tensor that holds a copy."""
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape))
