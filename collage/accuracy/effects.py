"""What operators in less precision do to the network's outputs, measured.

Real outputs of an operator are made by its backend, alone, from real activations. Their difference to float32 is added
to the operator's value in the float32 network, and what comes out is compared. Only what follows an operator runs
again: the network is compiled from a few places on, and what lies before each of them is taken from the reference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax

from collage.accuracy.program import Program, anywhere, by_patterns, on_engine, perturbed, side_by_side
from collage.accuracy.samples import Sample
from collage.accuracy.table import squared_error
from collage.annotations.precision import INT8, UNKNOWN, Range
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


@dataclass(frozen=True)
class Effect:
    """What one operator does in a precision, on one sample.

    Attributes
    ----------
    size
        The squared error of its own value, relative; infinite where its backend fails.
    gain
        What that is multiplied with on its way to the outputs; None where it was not measured here.
    """

    size: float
    gain: float | None = None


#: By place and number of the sample.
Effects = Mapping[tuple[Place, int], Effect]


def measured(
    module: Any,
    graph: DataflowGraph,
    engines: Sequence[Backend],
    places: Sequence[Place],
    samples: Sequence[Sample],
    reference: ReferenceRun,
    reporter: Reporter,
    known: Effects = MappingProxyType({}),
) -> Iterator[dict[tuple[Place, int], Effect]]:
    """The effects of all places on all samples, besides those that are known, as they are measured.

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
    missing = to_measure(places, len(samples), known)
    ranks = {node: rank for rank, node in enumerate(sorted({place.node for place in places}))}
    gained = {(place.node, number) for (place, number), effect in known.items() if effect.gain is not None}
    wanted = [place for place in places if any((place, number) in missing for number in range(len(samples)))]
    parts = _parts(module, graph, engines, wanted, reference.threads)
    for number, sample in enumerate(samples):
        run = reference.on(sample)
        due = {
            node for node, rank in ranks.items() if (rank + number + 1) % _EVERY == 0 and (node, number) not in gained
        }
        if number == len(samples) - 1:
            due |= ranks.keys() - {node for node, _ in gained}
        for part in parts:
            if not any((place, number) in missing for place in part.places):
                continue
            found = {(place, number): effect for place, effect in part.effects(run, due)}
            gained |= {(place.node, number) for (place, _), effect in found.items() if effect.gain is not None}
            yield found
            reporter.step(f"{part}, sample {number + 1}", len(missing & found.keys()))


def to_measure(places: Sequence[Place], samples: int, known: Effects) -> set[tuple[Place, int]]:
    """The places, by sample, whose effects are not known; on the last sample those, too, whose gain nobody has seen."""
    missing = {(place, number) for number in range(samples) for place in places if (place, number) not in known}
    gained = {place.node for (place, _), effect in known.items() if effect.gain is not None}
    last = ((place, samples - 1) for place in places if place.node not in gained)
    return missing | {at for at in last if at in known and 0 < known[at].size < math.inf}


def squared_errors(effects: Effects) -> dict[Place, float]:
    """The squared error of each place: its mean size times the mean gain of its node."""
    sizes: dict[Place, list[float]] = {}
    gains: dict[int, list[float]] = {}
    for (place, _), effect in effects.items():
        sizes.setdefault(place, []).append(effect.size)
        if effect.gain is not None:
            gains.setdefault(place.node, []).append(effect.gain)
    return {place: _product(own, gains.get(place.node, [])) for place, own in sizes.items()}


def _product(sizes: Sequence[float], gains: Sequence[float]) -> float:
    """Mean size times mean gain."""
    size = sum(sizes) / len(sizes)
    return size * sum(gains) / len(gains) if gains and 0 < size < math.inf else size


def _parts(
    module: Any, graph: DataflowGraph, engines: Sequence[Backend], places: Sequence[Place], threads: int
) -> list[_Part]:
    """Places that lie side by side."""
    nodes = sorted({place.node for place in places})
    count = min(_STARTS, math.ceil(len(nodes) / _OPERATORS)) if engines else min(1, len(nodes))
    chunks = [set(map(int, chunk)) for chunk in np.array_split(nodes, count)] if nodes else []
    return [_Part(module, graph, engines, [p for p in places if p.node in own], threads) for own in chunks]


class _Part:
    """Operators that lie side by side, and the float32 network from the first of them on."""

    def __init__(
        self, module: Any, graph: DataflowGraph, engines: Sequence[Backend], places: Sequence[Place], threads: int
    ) -> None:
        self.places = places
        self._nodes = sorted({place.node for place in places})
        rest = SubGraph(graph, IndexSet(index for index in graph.coverable if index >= self._nodes[0]))
        position = {index: i for i, index in enumerate(rest.inside)}
        self._inputs = ordered_inputs(rest)
        shifted = perturbed(extract(module, rest), {position[index] for index in self._nodes})
        self._make = partial(anywhere, shifted, engines, threads)
        shapes = {index: static_shape(graph.nodes[index].var.ty) or () for index in self._nodes}
        zeros = {shape: np.zeros(shape, np.float32) for shape in shapes.values()}
        self._nothing = {index: zeros[shape] for index, shape in shapes.items()}
        groups: dict[tuple[str, str], list[Place]] = {}
        for place in places:
            groups.setdefault((place.backend.name, place.precision), []).append(place)
        self._alone = [alone for group in groups.values() for alone in _alone(graph, group, threads)]

    @cached_property
    def _network(self) -> Program:
        """The float32 network from here on; gains that are known need none."""
        return self._make()

    def __str__(self) -> str:
        return f"nodes {self._nodes[0]} to {self._nodes[-1]}"

    def effects(self, run: ReferenceRun, due: Collection[int]) -> Iterator[tuple[Place, Effect]]:
        """What each operator does in one run, with a gain where one is due."""
        given = run.values(self._inputs)
        waiting = set(due)
        expected: list[np.ndarray] | None = None
        for alone in self._alone:
            for place, output in alone.outputs(run):
                node = place.node
                difference, size = (None, math.inf) if output is None else _difference(output, run.values([node])[0])
                gain = None
                if difference is not None and node in waiting:
                    waiting.remove(node)
                    if expected is None:
                        expected = self._network([*given, *self._nothing.values()])
                    shifted = self._network([*given, *{**self._nothing, node: difference}.values()])
                    gain = squared_error(shifted, expected) / size
                yield place, Effect(size, gain)


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
            data = {i: _operand_ranges(graph, backend, p.node) for i, p in enumerate(places) if p.precision == INT8}
            return [_Alone(graph, places, on_engine(function, backend, threads, data))]
        ranges = [nodes[index].range for place in places for index in graph.data_inputs[place.node]]
        return [_Alone(graph, places, by_patterns(function, backend, threads, ranges))]
    except (CodegenError, CompiledModelError):
        if len(places) == 1:
            return [_Alone(graph, places, None)]
    return [alone for place in places for alone in _alone(graph, [place], threads)]


def _operand_ranges(graph: DataflowGraph, backend: Backend, index: int) -> list[Range]:
    """Of the operands of a node; `UNKNOWN` of those that are not quantised."""
    node = graph.nodes[index]
    quantised = {graph.nodes[i].var: graph.nodes[i].range for i in backend.int8_operands(graph, node)}
    return [quantised.get(a, UNKNOWN) if isinstance(a, relax.Var) else UNKNOWN for a in node.expr.args]
