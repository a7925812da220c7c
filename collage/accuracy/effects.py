"""What operators in less precision do to the network's outputs, measured.

Real outputs of an operator are made by its backend, alone, from real activations. Their difference to float32 is added
to the operator's value in the float32 network, and what comes out is compared. Only what follows an operator runs
again: the network is compiled from a few places on, and what lies before each of them is taken from the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collage.accuracy.program import Program, anywhere, on_engine, perturbed, side_by_side
from collage.accuracy.table import squared_error
from collage.backends.base import Backend
from collage.compile.rewrite import extract, ordered_inputs
from collage.errors import CodegenError, CompiledModelError
from collage.graph.dataflow_graph import DataflowGraph
from collage.graph.index_set import IndexSet
from collage.graph.sub_graph import SubGraph
from collage.measure.reference import ReferenceRun
from collage.precision import INT8
from collage.progress import Reporter

#: Below this squared relative error an operator alone is as in float32: what engines differ by.
_NOISE = 1e-11
#: The network is compiled anew after so many operators, at most so many times: each holds the weights that follow.
_OPERATORS, _STARTS = 12, 4


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
    runs: Iterable[ReferenceRun],
    threads: int,
    reporter: Reporter,
) -> dict[Place, float]:
    """The squared error of each place, the mean over runs; infinite where its backend fails.

    Parameters
    ----------
    engines
        Graph backends that compute the whole network in float32, the preferred one first; TVM does where there is none.
    runs
        One for each sample; each is used up before the next one is asked for.
    """
    nodes = sorted({place.node for place in places})
    count = min(_STARTS, math.ceil(len(nodes) / _OPERATORS)) if engines else 1
    parts = []
    for chunk in np.array_split(nodes, count):
        own = set(map(int, chunk))
        parts.append(_Part(module, graph, engines, [place for place in places if place.node in own], threads))
    found: dict[Place, list[float]] = {place: [] for place in places}
    for run in runs:
        for part in parts:
            for place, squared in part.errors(run):
                found[place].append(squared)
                reporter.step(f"{graph.nodes[place.node]} in {place.precision}")
    return {place: sum(each) / len(each) for place, each in found.items()}


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
        groups: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            groups.setdefault((place.backend.name, place.precision), []).append(place)
        self._alone = [alone for group in groups.values() for alone in _alone(graph, group, threads)]

    def errors(self, run: ReferenceRun) -> Iterator[tuple[Place, float]]:
        """The squared error of each place in one run."""
        given = run.values(self._inputs)
        nothing = {index: np.zeros_like(run.values([index])[0]) for index in self._nodes}
        expected: list[np.ndarray] | None = None
        for alone in self._alone:
            for place, output in alone.outputs(run):
                difference = None if output is None else _difference(output, run.values([place.node])[0])
                if difference is None:
                    yield place, math.inf
                elif not difference.any():
                    yield place, 0.0
                else:
                    if expected is None:
                        expected = self._network([*given, *nothing.values()])
                    yield place, squared_error(self._shifted(given, nothing, {place.node: difference}), expected)

    def _shifted(
        self, given: Sequence[np.ndarray], nothing: Mapping[int, np.ndarray], by: Mapping[int, np.ndarray]
    ) -> list[np.ndarray]:
        return self._network([*given, *({**nothing, **by}).values()])


def _difference(ours: np.ndarray, real: np.ndarray) -> np.ndarray | None:
    """What an operator's own error adds to its value, nothing where engines differ as much; None where it is not finite
    and should be.
    """
    finite = np.isfinite(real)
    if not np.array_equal(finite, np.isfinite(ours)):
        return None
    difference = np.where(finite, ours, 0) - np.where(finite, real, 0)
    size = np.square(np.where(finite, real, 0), dtype=np.float64).sum()
    return difference if np.square(difference, dtype=np.float64).sum() > _NOISE * size else np.zeros_like(difference)


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
    ranges = [nodes[nodes[place.node].inputs[0]].range for place in places] if places[0].precision == INT8 else []
    try:
        return [_Alone(graph, places, on_engine(function, backend, threads, list(enumerate(ranges))))]
    except (CodegenError, CompiledModelError):
        if len(places) == 1:
            return [_Alone(graph, places, None)]
    return [alone for place in places for alone in _alone(graph, [place], threads)]
