"""Sensitivities: the error that each operator adds to the network's outputs in less precision.

What an operator does on one sample is one record, written as it is measured: the next budget on the same network
measures nothing, and what was interrupted goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collage.accuracy.digests import arrays_digest, weights_digest
from collage.accuracy.effects import Effect, Effects, Place, measured, squared_errors, to_measure
from collage.accuracy.samples import Sample
from collage.accuracy.table import ErrorTable, squared_error
from collage.annotations.precision import FLOAT32, INT8, UNKNOWN, Range
from collage.backends.base import Backend
from collage.cost.cost import Cost
from collage.errors import ModelInputError
from collage.graph.candidates import covered
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.index_set import IndexSet
from collage.graph.kinds import NodeKind, OpKind, ValueKind
from collage.measure.reference import ReferenceRun
from collage.progress import Reporter
from collage.records import Record, RecordDatabase, RecordKey, sensitivity_key
from collage.records.key import digest_of
from collage.rules.base import PartitionSpec
from collage.runtime.device_info import describe_device

__all__ = ["ErrorTable", "sensitivities", "squared_error"]

#: How errors are measured; another version measures all of them again.
_PROTOCOL = {"name": "sensitivity", "version": 2}
#: Operators that move numbers, or compute each from its own position: alone no backend computes them in less.
_LIGHT = frozenset((OpKind.ELEMENTWISE, OpKind.BROADCAST, OpKind.INJECTIVE, OpKind.TUPLE))


def sensitivities(
    module: Any,
    graph: DataflowGraph,
    backends: Mapping[str, Backend],
    samples: Sequence[Sample],
    threads: int,
    database: RecordDatabase,
    reporter: Reporter,
    precisions: Collection[str],
    reference: ReferenceRun | None = None,
    network: str = "",
) -> ErrorTable:
    """The errors of all operators in some precisions, from the records where they are known.

    Parameters
    ----------
    module, graph
        The calibrated module (`collage.accuracy.calibration`) and its dataflow graph.
    backends
        By name. The first one of a precision, by priority, represents it, of graph backends where there are any: errors
        of backends that compute in the same precision differ little.
    samples
        On which errors are measured; the table has the means over them.
    precisions
        Of `collage.annotations.precision`.
    reference
        A run of the network, which shares what it has compiled; by default one is made where it is needed.
    network
        Its `weights_digest`, where that is known.

    Raises
    ------
    ModelInputError
        There are no samples, or they do not fit the network.
    RecordsError
        The records cannot be read or written.
    """
    if not samples:
        raise ModelInputError("there are no samples to measure errors on")
    ordered = sorted(backends.values(), key=lambda backend: (backend.priority, backend.name))
    errors: dict[str, dict[int, float]] = {}
    places: list[Place] = []
    for precision in (each for each in precisions if each != FLOAT32):
        backend = _representative(graph, precision, ordered)
        if backend is not None:
            changed = _changed(graph, precision, backend)
            errors[precision] = dict.fromkeys(changed, math.inf)
            places += [Place(node, precision, backend) for node, possible in changed.items() if possible]
    keys = _keys(places, backends, graph, samples, network or weights_digest(module, graph), threads)
    records = database.get_many(keys.values())
    effects: dict[tuple[Place, int], Effect] = {
        at: _recalled(records[key]) for at, key in keys.items() if key in records
    }
    missing = to_measure(places, len(samples), effects)
    if missing:
        reporter.stage("measuring errors", len(missing))
        first = reference or ReferenceRun(module, graph, threads)
        engines = [backend for backend in ordered if _runs_whole(graph, backend)]
        began = time.perf_counter()
        for found in measured(module, graph, engines, places, samples, first, reporter, dict(effects)):
            now = time.perf_counter()
            database.put_many(_records(found, keys, graph, (now - began) / len(found)))
            effects |= found
            began = now
    for place, error in squared_errors(effects).items():
        errors[place.precision][place.node] = error
    return ErrorTable(errors)


def _representative(graph: DataflowGraph, precision: str, backends: Sequence[Backend]) -> Backend | None:
    """The backend that a precision is measured on: one on an engine, where many operators are compiled at once."""
    for backend in filter(_on_engine, backends):
        if backend.precision == precision or (precision == INT8 and any(map(backend.takes_int8, _calls(graph)))):
            return backend
    return next((b for b in backends if b.precision == precision and b.style == "library" and b.device == "cpu"), None)


def _on_engine(backend: Backend) -> bool:
    return backend.style == "graph" and backend.makes_blobs and backend.device == "cpu"


def _calls(graph: DataflowGraph) -> list[DataflowNode]:
    return [node for index in graph.coverable if (node := graph.nodes[index]).kind is NodeKind.CALL]


def _changed(graph: DataflowGraph, precision: str, backend: Backend) -> dict[int, bool]:
    """The nodes that a precision changes, and whether their errors can be measured."""
    calls = _calls(graph)
    heavy = [node for node in calls if node.op_kind not in _LIGHT]
    if backend.precision == precision:
        found = _taken(graph, backend)
        able = {node.index for node in heavy if node.index in found}
    else:
        able = {node.index for node in calls if backend.takes_int8(node)}
    if precision == INT8:
        ranged = {i for i in able if UNKNOWN not in _data_ranges(graph, backend, i)}
        return {n.index: n.index in ranged for n in calls if n.op_kind is OpKind.ANCHOR or n.index in able}
    return {n.index: _is_single(n) for n in heavy if n.index in able}


def _runs_whole(graph: DataflowGraph, backend: Backend) -> bool:
    """Whether a backend computes the whole network in float32."""
    if not _on_engine(backend) or backend.precision != FLOAT32:
        return False
    taken = _taken(graph, backend)
    return all(node.index in taken for node in _calls(graph))


def _taken(graph: DataflowGraph, backend: Backend) -> IndexSet:
    """The nodes that a backend's rule finds."""
    return covered(PartitionSpec(backend.partition_rule, backend.name).candidates(graph))


def _is_single(node: DataflowNode) -> bool:
    """Whether a node's value is a tensor of float32, to which an error can be added."""
    return node.value is ValueKind.TENSOR and node.size > 0 and str(node.var.ty.dtype) == "float32"


def _data_ranges(graph: DataflowGraph, backend: Backend, node: int) -> list[Range]:
    """Of what a node reads in eight bits."""
    return [graph.nodes[index].range for index in backend.int8_operands(graph, graph.nodes[node])]


def _keys(
    places: Sequence[Place],
    backends: Mapping[str, Backend],
    graph: DataflowGraph,
    samples: Sequence[Sample],
    network: str,
    threads: int,
) -> dict[tuple[Place, int], RecordKey]:
    """The key of each place on each sample."""
    device = describe_device("cpu")
    used = {place.backend.name for place in places}
    of_backend = {name: sensitivity_key("", backends[name], device, threads, _PROTOCOL) for name in used}
    told = [arrays_digest(network, sample) for sample in samples]
    keys = {}
    for place in places:
        ranges = _data_ranges(graph, place.backend, place.node) if place.precision == INT8 else []
        for number, sample in enumerate(told):
            structure = digest_of([sample, place.node, place.precision, ranges])
            keys[place, number] = replace(of_backend[place.backend.name], structure=structure)
    return keys


def _records(
    found: Effects, keys: Mapping[tuple[Place, int], RecordKey], graph: DataflowGraph, seconds: float
) -> Iterator[Record]:
    for (place, number), effect in found.items():
        node = graph.nodes[place.node]
        yield Record.of(
            keys[place, number],
            Cost(seconds, samples=1),
            label=f"{node} in {place.precision}",
            operators=(node.op,),
            description={
                "node": place.node,
                "precision": place.precision,
                "size": effect.size if math.isfinite(effect.size) else None,
                "gain": effect.gain,
            },
        )


def _recalled(record: Record) -> Effect:
    facts = record.description or {}
    size, gain = facts.get("size"), facts.get("gain")
    return Effect(math.inf if size is None else float(size), None if gain is None else float(gain))
