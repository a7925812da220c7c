"""Probes: one small operator on one backend, for measurements that every backend takes part in.

A probe runs right before a candidate and wakes the threads that the candidate will use, as the partition before it
would in a network. Threads that sleep take a tenth of a millisecond and more to wake up on a virtual machine, longer
than many a partition runs. Two probes in sequence show what a transition between their backends costs
(`collage.measure.transitions`), so every probe gives a tensor of the shape that it takes.

A backend's own rule picks the candidates of a probe's network, so that library patterns are labelled as in any other
candidate. Backends differ in what they take: each gets the first network of a short list that its rule takes whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from collage.arrays import write_arrays
from collage.backends.base import Backend
from collage.cost.estimator import Workload
from collage.errors import last_line
from collage.graph.candidates import CandidatePartition
from collage.graph.from_relax import read_graph
from collage.measure.artifact import Artifact, Preparation, prepare
from collage.measure.builder import Built, build_all
from collage.measure.faults import Failure, blame_of
from collage.measure.workloads import WorkloadFactory
from collage.rules.base import PartitionSpec

Shape = tuple[int, int, int, int]

#: Of a warm-up's tensor, float32, channels first: a quarter of a MiB, and half a millisecond of convolution.
WARM_UP: Shape = (1, 16, 64, 64)


def probe(backend: Backend, threads: int, shape: Shape = WARM_UP) -> Workload | None:
    """The probe of a backend, from one tensor of `shape` to another; None when it takes no network of the list."""
    for network in _NETWORKS:
        module = _module(network, shape)
        graph = read_graph(module)
        candidate = _whole(PartitionSpec(backend.rule(), backend.name).candidates(graph), len(graph.coverable))
        if candidate is not None:
            return WorkloadFactory(module, graph, {backend.name: backend}, threads).of(candidate)
    return None


def build_probes(
    backends: Iterable[Backend],
    threads: int,
    folder: Path,
    jobs: int,
    timeout_s: float,
    shapes: Sequence[Shape] = (WARM_UP,),
) -> dict[tuple[str, Shape], Built]:
    """(name, shape) -> the probe, compiled to `folder`, or why there is none."""
    result: dict[tuple[str, Shape], Built] = {}
    prepared: list[tuple[str, Shape]] = []

    def preparations() -> Iterator[Preparation]:
        for number, (backend, shape) in enumerate(product(backends, shapes)):
            try:
                workload = probe(backend, threads, shape)
                preparation = None if workload is None else prepare(workload, folder / f"probe{number}")
            except Exception as error:  # a defect of one backend costs its probe only (Invariant 5)
                result[backend.name, shape] = Failure(last_line(error), blame_of(error))
                continue
            if preparation is None:
                result[backend.name, shape] = Failure(f"{backend.name} takes no operator that there is a probe of")
                continue
            prepared.append((backend.name, shape))
            yield preparation

    built = build_all(preparations(), jobs, timeout_s)
    return result | dict(zip(prepared, built, strict=True))


def self_contained(probes: Iterable[Artifact], folder: Path, shape: Shape = WARM_UP) -> list[Artifact]:
    """The probes with an input of their own, kept in `folder`: they are called without arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    given = write_arrays((probe_input(shape),), folder, "probe_input")
    return [replace(artifact, weights=(*given, *artifact.weights)) for artifact in probes]


def probe_input(shape: Shape = WARM_UP) -> np.ndarray:
    """What probes are run on."""
    return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)


def _whole(candidates: list[CandidatePartition], nodes: int) -> CandidatePartition | None:
    return next((c for c in candidates if len(c.sub_graph.inside) == nodes), None)


def _convolution(x: Any, shape: Shape) -> Any:
    channels = shape[1]
    return relax.op.nn.conv2d(x, _weight((channels, channels, 3, 3), 1 / (3 * channels**0.5)), padding=(1, 1))


def _product(x: Any, shape: Shape) -> Any:
    return relax.op.matmul(x, _weight((shape[3], shape[3]), 1 / shape[3] ** 0.5))


def _activation(x: Any, _shape: Shape) -> Any:
    return relax.op.nn.relu(x)


#: By preference: what runs on all threads at small sizes, first.
_NETWORKS: tuple[Callable[[Any, Shape], Any], ...] = (_convolution, _product, _activation)


def _weight(shape: tuple[int, ...], scale: float) -> Any:
    return relax.const(np.random.default_rng(0).standard_normal(shape, dtype=np.float32) * np.float32(scale))


@cache
def _module(network: Callable[[Any, Shape], Any], shape: Shape) -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(network(x, shape))
        builder.emit_func_output(result)
    module: tvm.IRModule = builder.get()
    return relax.transform.CanonicalizeBindings()(module)
