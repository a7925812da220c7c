"""Sensitivities: the error that each operator adds to the network's outputs in less precision.

One measurement is one record, so that the next budget on the same network measures nothing.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collage.accuracy.effects import Place, measured
from collage.accuracy.samples import Sample
from collage.accuracy.table import ErrorTable, squared_error
from collage.annotations.precision import FLOAT32, INT8, UNKNOWN, Range
from collage.backends.base import Backend
from collage.cost.cost import Cost
from collage.errors import ModelInputError
from collage.frontend.values import value_of
from collage.graph.candidates import covered
from collage.graph.dataflow_graph import DataflowGraph, DataflowNode
from collage.graph.description import describe_module, structure_hash
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
_PROTOCOL = {"name": "sensitivity", "version": 1}
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
    keys = _keys(places, graph, _digest(module, graph, samples), threads)
    known = database.get_many(keys.values())
    squared = {place: _recalled(known[key]) for place, key in keys.items() if key in known}
    missing = [place for place in places if place not in squared]
    if missing:
        reporter.stage("measuring errors", len(missing) * len(samples))
        first = reference or ReferenceRun(module, graph, threads)
        engines = [backend for backend in ordered if _runs_whole(graph, backend)]
        began = time.perf_counter()
        found = measured(module, graph, engines, missing, samples, first, reporter)
        seconds = (time.perf_counter() - began) / len(missing)
        database.put_many(_record(place, keys[place], found[place], graph, seconds) for place in missing)
        squared |= found
    for place, error in squared.items():
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
    heavy = [node for node in _calls(graph) if node.op_kind not in _LIGHT]
    if backend.precision == precision:
        found = _taken(graph, backend)
        able = {node.index for node in heavy if node.index in found}
    else:
        able = {node.index for node in heavy if backend.takes_int8(node)}
    if precision == INT8:
        ranged = {index for index in able if _data_range(graph, index) != UNKNOWN}
        return {n.index: n.index in ranged for n in heavy if n.op_kind is OpKind.ANCHOR or n.index in able}
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


def _data_range(graph: DataflowGraph, node: int) -> Range:
    return graph.nodes[graph.nodes[node].inputs[0]].range


def _keys(places: Sequence[Place], graph: DataflowGraph, told: str, threads: int) -> dict[Place, RecordKey]:
    device = describe_device("cpu")
    backends = {place.backend.name: place.backend for place in places}
    of_backend = {name: sensitivity_key("", b, device, threads, _PROTOCOL) for name, b in backends.items()}
    keys = {}
    for place in places:
        what = [told, place.node, place.precision]
        if place.precision == INT8:
            what += _data_range(graph, place.node)
        keys[place] = replace(of_backend[place.backend.name], structure=digest_of(what))
    return keys


def _digest(module: Any, graph: DataflowGraph, samples: Sequence[Sample]) -> str:
    """Of the network's structure and weights, and of the samples."""
    digest = hashlib.sha256(structure_hash(describe_module(module)).encode())
    weights = [value_of(graph.nodes[index].expr) for index in graph.constants]
    for array in (*(w for w in weights if w is not None), *(array for sample in samples for array in sample)):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _record(place: Place, key: RecordKey, squared: float, graph: DataflowGraph, seconds: float) -> Record:
    node = graph.nodes[place.node]
    return Record.of(
        key,
        Cost(seconds, samples=1),
        label=f"{node} in {place.precision}",
        operators=(node.op,),
        description={
            "node": place.node,
            "precision": place.precision,
            "squared_error": squared if math.isfinite(squared) else None,
        },
    )


def _recalled(record: Record) -> float:
    error = (record.description or {}).get("squared_error")
    return math.inf if error is None else float(error)
