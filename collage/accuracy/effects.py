"""What operators in less precision do to the network's outputs, measured.

Real outputs of an operator are made by its backend, alone, from real activations. Their difference to float32 is added
to the operator's value in the float32 network, and what comes out is compared. Only what follows an operator runs
again: the network is compiled from a few places on, and what lies before each of them is taken from the reference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collage.accuracy.program import Program, anywhere, by_patterns, on_engine, perturbed, side_by_side
from collage.accuracy.samples import Sample
from collage.accuracy.table import squared_error
from collage.annotations.precision import INT8
from collage.backends.base import Backend
from collage.compile.rewrite import extract, ordered_inputs
from collage.errors import CodegenError, CompiledModelError
from collage.frontend.values import static_shape
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter

#: Below this squared relative error an operator alone is as in float32: what engines differ by.
_NOISE = 1e-11
#: The network is compiled anew after so many operators, at most so many times: each holds the weights that follow.
_OPERATORS, _STARTS = 12, 4
#: The float32 network runs with an operator's error on every second sample.
_EVERY = 2


@dataclass(frozen=True)
class Place:
    """An operator in a precision, and the backend that represents the precision."""

    node: int
    precision: str
    backend: Backend


def measured(
    module: Any,
    graph: DataflowGraph,
    engines: Sequence[Backend],
    places: Sequence[Place],
    samples: Sequence[Sample],
    reference: ReferenceRun,
    reporter: Reporter,
) -> dict[Place, float]:
    """The squared error of each place, the mean over samples; infinite where its backend fails.

    What an operator's own error is multiplied with on its way to the outputs depends on the place, and little on the
    sample or on where the error comes from (docs/ACCURACY.md). It is found on every second sample, by the precision
    that comes first.

    Parameters
    ----------
    engines
        Graph backends that compute the whole network in float32, the preferred one first; TVM does where there is none.
    reference
        A run of the network, on whatever inputs.
    """
    nodes = sorted({place.node for place in places})
    count = min(_STARTS, math.ceil(len(nodes) / _OPERATORS)) if engines else 1
    parts = []
    for chunk in np.array_split(nodes, count):
        own = set(map(int, chunk))
        parts.append(_Part(module, graph, engines, [place for place in places if place.node in own], reference.threads))
    local: dict[Place, list[float]] = {place: [] for place in places}
    gains: dict[int, list[float]] = {node: [] for node in nodes}
    for number, sample in enumerate(samples, 1):
        run = reference.on(sample)
        due = {node for i, node in enumerate(nodes) if (i + number) % _EVERY == 0}
        if number == len(samples):
            due |= {node for node, found in gains.items() if not found}
        for part in parts:
            for place, size in part.errors(run, due, gains):
                local[place].append(size)
                reporter.step(f"{graph.nodes[place.node]} in {place.precision}")
    return {place: _product(local[place], gains[place.node]) for place in places}


def _product(sizes: Sequence[float], gains: Sequence[float]) -> float:
    """Mean size times mean gain."""
    size = sum(sizes) / len(sizes)
    return size * sum(gains) / len(gains) if gains and size > 0 else size


class _Part:
    """Operators that lie side by side, and the float32 network from the first of them on."""

    def __init__(
        self, module: Any, graph: DataflowGraph, engines: Sequence[Backend], places: Sequence[Place], threads: int
    ) -> None:
        self._nodes = sorted({place.node for place in places})
        rest = SubGraph(graph, IndexSet(index for index in graph.coverable if index >= self._nodes[0]))
        position = {index: i for i, index in enumerate(rest.inside)}
        self._inputs = ordered_inputs(rest)
        shifted = perturbed(extract(module, rest), {position[index] for index in self._nodes})
        self._network = anywhere(shifted, engines, threads)
        shapes = {index: static_shape(graph.nodes[index].var.ty) or () for index in self._nodes}
        zeros = {shape: np.zeros(shape, np.float32) for shape in shapes.values()}
        self._nothing = {index: zeros[shape] for index, shape in shapes.items()}
        groups: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            groups.setdefault((place.backend.name, place.precision), []).append(place)
        self._alone = [alone for group in groups.values() for alone in _alone(graph, group, threads)]

    def errors(
        self, run: ReferenceRun, due: Collection[int], gains: Mapping[int, list[float]]
    ) -> Iterator[tuple[Place, float]]:
        """The squared relative error of each operator alone, in one run; those that are due add what it is multiplied
        with to `gains`.
        """
        given = run.values(self._inputs)
        waiting = set(due)
        expected: list[np.ndarray] | None = None
        for alone in self._alone:
            for place, output in alone.outputs(run):
                node = place.node
                difference, size = (None, math.inf) if output is None else _difference(output, run.values([node])[0])
                if difference is not None and node in waiting:
                    waiting.remove(node)
                    if expected is None:
                        expected = self._network([*given, *self._nothing.values()])
                    shifted = self._network([*given, *{**self._nothing, node: difference}.values()])
                    gains[node].append(squared_error(shifted, expected) / size)
                yield place, size


def _difference(ours: np.ndarray, real: np.ndarray) -> tuple[np.ndarray | None, float]:
    """What an operator's own error adds to its value, and its squared relative size: None and 0 where engines differ as
    much, infinity where it is not finite and should be.
    """
    finite = np.isfinite(real)
    if not np.array_equal(finite, np.isfinite(ours)):
        return None, math.inf
    real = np.where(finite, real, 0)
    difference = np.where(finite, ours, 0) - real
    error, size = (float(np.square(each, dtype=np.float64).sum()) for each in (difference, real))
    if error <= _NOISE * size:
        return None, 0.0
    return difference, error / size if size > 0 else math.inf


@dataclass(frozen=True)
class _Alone:
    """Operators in one precision, each on inputs of its own; None computes nothing: the backend failed."""

    graph: DataflowGraph
    places: Sequence[Place]
    program: Program | None

    def outputs(self, run: ReferenceRun) -> Iterator[tuple[Place, np.ndarray | None]]:
        """What each operator gives in a run of the network."""
        if self.program is None:
            yield from ((place, None) for place in self.places)
            return
        read = [i for place in self.places for i in self.graph.data_inputs[place.node]]
        yield from zip(self.places, self.program(run.values(read)), strict=True)


def _alone(graph: DataflowGraph, places: Sequence[Place], threads: int) -> list[_Alone]:
    """Operators of one backend and precision, compiled together; where that fails, one by one."""
    backend, nodes = places[0].backend, graph.nodes
    function = side_by_side(nodes[place.node].expr for place in places)
    try:
        if backend.style == "graph":
            data = [nodes[nodes[place.node].inputs[0]].range for place in places if place.precision == INT8]
            return [_Alone(graph, places, on_engine(function, backend, threads, list(enumerate(data))))]
        ranges = [nodes[index].range for place in places for index in graph.data_inputs[place.node]]
        return [_Alone(graph, places, by_patterns(function, backend, threads, ranges))]
    except (CodegenError, CompiledModelError):
        if len(places) == 1:
            return [_Alone(graph, places, None)]
    return [alone for place in places for alone in _alone(graph, [place], threads)]
